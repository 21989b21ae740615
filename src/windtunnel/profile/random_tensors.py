"""Random inputs and weights that depend only on a seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def random_tensor(shape: tuple[int, ...], place: Any, dtype: torch.dtype, seed: int) -> Tensor:
    """Normal random numbers that depend only on the seed."""
    return torch.randn(shape, generator=torch.Generator(place).manual_seed(seed), device=place, dtype=torch.float32).to(dtype)
