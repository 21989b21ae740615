"""The feed-forward part: up (and gate) projection, activation, down projection."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from windtunnel.profile.case import Case


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
