"""The workspace of products, and gradients that stand for those that are elsewhere."""

from typing import Any

import torch

_dummies: dict[Any, Any] = {}


def get_workspace() -> Any:
    return None


def get_dummy_wgrad(shape: list[int], dtype: Any, zero: bool = False) -> Any:
    key = tuple(shape), dtype
    if key not in _dummies:
        _dummies[key] = torch.empty(shape, dtype=dtype, device="cuda", requires_grad=False)
    return _dummies[key].detach()


class TransformerEngineBaseModule(torch.nn.Module):
    """The base class of modules with products."""
