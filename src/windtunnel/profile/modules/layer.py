"""A decoder layer, a stack of them, and the whole small model of a step.

Mixture of experts: a router picks `top_k` experts a token, and the tokens of one expert go through its MLP together.

The feed-forward part: up (and gate) projection, activation, down projection.

Causal self-attention with grouped key-value heads, local heads of one tensor-parallel rank.

RMS norm and layer norm over the hidden dimension.

Rotary position embedding (Su et al. 2021), first half against second half, as Llama has it.

The parameter update: AdamW, on the parameters or on fp32 copies of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from windtunnel.profile.case import Case
from windtunnel.profile.modules.recurrent import DeltaMixer, StateSpaceMixer
from windtunnel.spec.mixer import MIXERS
from windtunnel.spec.model import LayerKind, Model

Angles = tuple[Tensor, Tensor] | None


class DecoderLayer(nn.Module):
    """x + attention(norm x), then x + mlp(norm x); with `parallel_block` both read the same norm. `experts`: whether the MLP is a
    mixture; default: as the case has them."""

    def __init__(self, case: Case, experts: bool | None = None) -> None:
        super().__init__()
        self.norm1 = norm(case)
        self.attention = Attention(case)
        self.norm2 = None if case.model.parallel_block else norm(case)
        self.mlp = MoE(case) if (bool(case.experts) if experts is None else experts) else MLP(case)

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        y = self.norm1(x)
        if self.norm2 is None:
            return cast(Tensor, x + self.attention(y, angles) + self.mlp(y))
        x = x + self.attention(y, angles)
        return cast(Tensor, x + self.mlp(self.norm2(x)))


class HybridLayer(nn.Module):
    """x + part(norm x) for each part of a layer of a hybrid: its mixer, its MLP, or both."""

    def __init__(self, case: Case, kind: LayerKind) -> None:
        super().__init__()
        mixer = MIXER_MODULES.get(mixer_module(kind, case.model) or "")
        feed = {"dense": MLP, "experts": MoE, "none": None}[kind.feed]
        self.parts = nn.ModuleList(part(case) for part in (mixer, feed) if part is not None)
        self.norms = nn.ModuleList(norm(case) for _ in self.parts)

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        for before, part in zip(self.norms, self.parts, strict=True):
            y = before(x)
            x = x + (part(y, angles) if isinstance(part, Attention) else part(y))
        return x


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


class MoE(nn.Module):
    """(batch, seq, hidden) -> the same; all experts on this GPU, inner width cut over tp, no token dropped.

    The weights of the chosen experts are the softmax over all experts, scaled to a sum of 1 (as Mixtral does).
    """

    def __init__(self, case: Case) -> None:
        super().__init__()
        hidden, experts, inner = case.model.hidden, case.experts, case.ffn
        self.top_k, self.experts = case.top_k, experts
        self.act, self.gated = ACTIVATIONS[case.model.activation], case.model.gated
        self.router = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, hidden, inner * (2 if self.gated else 1)))
        self.down = nn.Parameter(torch.empty(experts, inner, hidden))
        for weight in (self.up, self.down):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        share, chosen = self.router(tokens).float().softmax(dim=-1).topk(self.top_k, dim=-1)
        share = (share / share.sum(dim=-1, keepdim=True)).to(x.dtype).reshape(-1)
        order = chosen.reshape(-1).argsort(stable=True)
        ends = functional.one_hot(chosen.reshape(-1), self.experts).sum(dim=0).cumsum(dim=0).to(torch.int32)
        source = order // self.top_k
        inner = grouped_product(tokens[source], self.up, ends)
        if self.gated:
            gate, up = inner.chunk(2, dim=-1)
            inner = self.act(gate) * up
        else:
            inner = self.act(inner)
        out = grouped_product(inner, self.down, ends) * share[order].unsqueeze(-1)
        return torch.zeros_like(tokens).index_add(0, source, out).view_as(x)


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)²."""
    return functional.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "squared_relu": squared_relu,
    "swiglu": functional.silu,
    "geglu": functional.gelu,
}


class MLP(nn.Module):
    """(…, hidden) -> (…, hidden): the partial sum of this rank's inner width; down(act(gate x) · up x), or down(act(up x))."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        hidden, bias = case.model.hidden, case.model.linear_bias
        self.act = ACTIVATIONS[case.model.activation]
        self.gate = nn.Linear(hidden, case.ffn, bias=bias) if case.model.gated else None
        self.up = nn.Linear(hidden, case.ffn, bias=bias)
        self.down = nn.Linear(case.ffn, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.act(self.up(x)) if self.gate is None else self.act(self.gate(x)) * self.up(x)
        return cast(Tensor, self.down(inner))


def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """x (tokens, in), sorted by expert, times each expert's weight (experts, in, out); `ends`: where each expert's tokens end.

    One grouped kernel where PyTorch has it (bf16 on CUDA), else one product an expert.
    """
    if x.is_cuda and x.dtype is torch.bfloat16:
        return cast(Tensor, functional.grouped_mm(x, weight, offs=ends))
    parts = x.tensor_split(ends[:-1].tolist())
    return torch.cat([part @ w for part, w in zip(parts, weight.unbind(), strict=True)])


class Attention(nn.Module):
    """(batch, seq, hidden) -> (batch, seq, hidden): the partial sum of this rank's heads.

    The core is PyTorch's fused attention, or (`attention` = unfused) scores, softmax and context as products of their own.
    """

    def __init__(self, case: Case) -> None:
        super().__init__()
        model = case.model
        self.heads, self.kv_heads, self.dim, self.window = case.heads, case.kv_heads, model.dim_per_head, model.window
        self.fused, self.again = case.attention == "flash", case.recompute == "selective"
        self.q = nn.Linear(model.hidden, self.heads * self.dim, bias=model.attention_bias)
        self.k = nn.Linear(model.hidden, self.kv_heads * self.dim, bias=model.attention_bias)
        self.v = nn.Linear(model.hidden, self.kv_heads * self.dim, bias=model.attention_bias)
        self.o = nn.Linear(self.heads * self.dim, model.hidden, bias=model.linear_bias)
        self.q_norm = norm(case, self.dim) if model.qk_norm else nn.Identity()
        self.k_norm = norm(case, self.dim) if model.qk_norm else nn.Identity()

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor] | None) -> Tensor:
        batch, seq, _ = x.shape
        q = self.q_norm(self.q(x).view(batch, seq, self.heads, self.dim)).transpose(1, 2)
        k = self.k_norm(self.k(x).view(batch, seq, self.kv_heads, self.dim)).transpose(1, 2)
        v = self.v(x).view(batch, seq, self.kv_heads, self.dim).transpose(1, 2)
        if angles is not None:
            q, k = rotate(q, *angles), rotate(k, *angles)
        core = partial(checkpoint, self.core, use_reentrant=False, preserve_rng_state=False) if self.again else self.core
        mixed = core(q, k, v)
        return cast(Tensor, self.o(mixed.transpose(1, 2).reshape(batch, seq, self.heads * self.dim)))

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """softmax(q kᵀ / sqrt(dim)) v over (batch, heads, seq, dim), no key after its query."""
        seq = q.shape[-2]
        windowed = self.window is not None and self.window < seq
        if self.fused and not windowed:
            return cast(
                Tensor, functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
            )
        visible = torch.ones(seq, seq, dtype=torch.bool, device=q.device).tril()
        if windowed:
            visible = visible.triu(1 - cast(int, self.window))
        if self.fused:
            return cast(
                Tensor, functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=self.heads != self.kv_heads)
            )
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(self.dim)).masked_fill(~visible, float("-inf"))
        return cast(Tensor, scores.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v)


MIXER_MODULES: dict[str, Callable[[Case], nn.Module]] = {
    "attention": Attention,
    "state_space_scan": StateSpaceMixer,
    "delta_rule": DeltaMixer,
    "channel_delta_rule": DeltaMixer,
}
"""By the sub-module of datasets that a mixer is, or its measured scan."""


def mixer_module(kind: LayerKind, model: Model) -> str | None:
    """The key of `MIXER_MODULES` of a layer's mixer: empty where it has none; None where there is no such module."""
    mixer = MIXERS[kind.mixer]
    name = mixer.measured or mixer.recurrence_in(model)
    if not mixer.mixes:
        return ""
    return name if name in MIXER_MODULES else None


EPSILON = 1e-5


def norm(case: Case, width: int | None = None) -> nn.Module:
    """The norm of `case.model` over the last dimension: x / sqrt(mean(x²) + ε) · gain (Zhang and Sennrich 2019), or layer norm."""
    kind = nn.RMSNorm if case.model.norm == "rmsnorm" else nn.LayerNorm
    return kind(width or case.model.hidden, eps=EPSILON)


BASE = 10000.0


def tables(seq: int, dim: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (seq, dim), the angles repeated for both halves."""
    frequency = BASE ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
    angle = torch.outer(torch.arange(seq, device=device, dtype=torch.float32), frequency).repeat(1, 2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` (batch, heads, seq, dim) turned by its positions' angles."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class TimedUpdate:
    """AdamW over `parameters`. With `master`, 16-bit parameters have fp32 copies that are stepped and cast back."""

    def __init__(self, parameters: Iterable[Tensor], master: bool) -> None:
        self.parameters = list(parameters)
        self.master = master and any(p.dtype is not torch.float32 for p in self.parameters)
        self.stepped = [p.detach().float().requires_grad_() for p in self.parameters] if self.master else self.parameters
        self.adam = torch.optim.AdamW(self.stepped, fused=True)

    def step(self) -> None:
        """One update from the parameters' gradients."""
        if self.master:
            for copy, parameter in zip(self.stepped, self.parameters, strict=True):
                copy.grad = None if parameter.grad is None else parameter.grad.float()
        self.adam.step()
        if self.master:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.stepped)
            for copy in self.stepped:
                copy.grad = None

    def clear(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None
