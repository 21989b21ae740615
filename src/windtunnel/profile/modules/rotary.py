"""Rotary position embedding (Su et al. 2021), first half against second half, as Llama has it."""

from __future__ import annotations

import torch
from torch import Tensor

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
