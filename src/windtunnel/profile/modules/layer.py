"""A decoder layer, a stack of them, and the whole small model of a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from windtunnel.profile.case import Case
from windtunnel.profile.modules.attention import Attention
from windtunnel.profile.modules.mlp import MLP
from windtunnel.profile.modules.moe import MoE
from windtunnel.profile.modules.norms import norm
from windtunnel.profile.modules.rotary import tables

Angles = tuple[Tensor, Tensor] | None


class DecoderLayer(nn.Module):
    """x + attention(norm x), then x + mlp(norm x); with `parallel_block` both read the same norm."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.norm1 = norm(case)
        self.attention = Attention(case)
        self.norm2 = None if case.model.parallel_block else norm(case)
        self.mlp = MoE(case) if case.experts else MLP(case)

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        y = self.norm1(x)
        if self.norm2 is None:
            return cast(Tensor, x + self.attention(y, angles) + self.mlp(y))
        x = x + self.attention(y, angles)
        return cast(Tensor, x + self.mlp(self.norm2(x)))


class Stack(nn.Module):
    """`layers` in a row, each recomputed as `recompute` says (full: all of it; ops: all but every second product and attention)."""

    def __init__(self, layers: list[nn.Module], recompute: str = "none") -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.recompute = recompute

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        again: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        if self.recompute == "ops":
            again["context_fn"] = op_contexts
        for layer in self.layers:
            x = checkpoint(layer, x, angles, **again) if self.recompute in ("full", "ops") else layer(x, angles)
        return x


def op_contexts() -> Any:
    """Contexts of op-level recomputation as torchtitan has it: attention and every second matrix product are kept."""
    return create_selective_checkpoint_contexts(partial(_keep, {"forward": 0, "again": 0}))


def _keep(products: dict[str, int], context: Any, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    name = str(op)
    kept = "scaled_dot_product" in name and "math" not in name
    if name.startswith(("aten.mm.", "aten.addmm.")):
        way = "again" if context.is_recompute else "forward"
        products[way] += 1
        kept = products[way] % 2 == 1
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


class Placed(nn.Module):
    """A stack with its rotary tables: x -> x."""

    def __init__(self, stack: Stack, case: Case, place: Any) -> None:
        super().__init__()
        self.stack = stack
        self.angles: Angles = None
        if case.model.position == "rope":
            self.angles = tables(case.seq, case.model.dim_per_head, place, TORCH[case.dtype])

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.stack(x, self.angles))


class Small(nn.Module):
    """Embedding, a stack, final norm, head and loss: (batch, seq) tokens and labels -> loss."""

    def __init__(self, embedding: nn.Module, stack: nn.Module, last: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.embedding, self.stack, self.last, self.head = embedding, stack, last, head

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return cast(Tensor, self.head(self.last(self.stack(self.embedding(tokens))), labels))


TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""PyTorch's name of a number format."""
