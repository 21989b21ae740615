"""The workspace of products, and gradients that stand for those that are elsewhere."""

from typing import Any

import torch

from transformer_engine.pytorch.fp8 import quantise

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

    first_microbatch: bool | None = None
    """Of the pass that runs; None: weights in 8 bits are not kept."""

    def narrow_weight(self, name: str, weight: Any) -> Any:
        """A weight in 8 bits by rows and by columns. It stays from micro batch to micro batch, and is cast in the first one of a
        step (get_weight_workspace)."""
        if self.first_microbatch is None:
            return quantise(weight)
        kept = self.__dict__.setdefault("_narrow_weights", {})
        if self.first_microbatch or name not in kept:
            kept.pop(name, None)
            kept[name] = quantise(weight)
        return kept[name]
