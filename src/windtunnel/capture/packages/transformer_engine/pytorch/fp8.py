"""Whether products are in 8 bits, and what that adds: a cast of each operand, by rows and by columns."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from windtunnel.capture.fused import kernel, refuse


def _bytes_of(tensor: Any) -> tuple[Any, Any]:
    rows, columns = tensor.shape
    return tensor.new_empty((rows, columns), dtype=torch.float8_e4m3fn), tensor.new_empty(
        (columns, rows), dtype=torch.float8_e4m3fn
    )


quantise = kernel("transformer_engine::quantize(Tensor tensor) -> (Tensor, Tensor)", _bytes_of)
"""A matrix in 8 bits, and its transpose."""


class FP8GlobalStateManager:
    """The state of the autocast."""

    enabled = False
    recipe: Any = None

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        return cls.enabled

    @classmethod
    def get_fp8_recipe(cls) -> Any:
        return cls.recipe

    @classmethod
    def is_first_fp8_module(cls) -> bool:
        return False

    @classmethod
    def get_fp8_autocast_state(cls) -> tuple[bool, Any]:
        return cls.enabled, cls.recipe

    @classmethod
    def set_fp8_autocast_state(cls, state: tuple[bool, Any]) -> None:
        cls.enabled, cls.recipe = state

    @classmethod
    def reset(cls) -> None:
        cls.enabled, cls.recipe = False, None

    @classmethod
    def is_fp8_available(cls) -> tuple[bool, str]:
        return torch.cuda.get_device_capability() >= (8, 9), "a GPU without 8 bits"

    set_skip_fp8_weight_update_tensor = get_skip_fp8_weight_update_tensor = classmethod(lambda cls, *_: None)


@contextlib.contextmanager
def fp8_autocast(
    enabled: bool = True, calibrating: bool = False, fp8_recipe: Any = None, fp8_group: Any = None, **_: Any
) -> Iterator[None]:
    before = FP8GlobalStateManager.get_fp8_autocast_state()
    FP8GlobalStateManager.set_fp8_autocast_state((enabled, fp8_recipe))
    try:
        yield
    finally:
        FP8GlobalStateManager.set_fp8_autocast_state(before)


@contextlib.contextmanager
def fp8_model_init(enabled: bool = True, **_: Any) -> Iterator[None]:
    if enabled:
        raise refuse("weights kept in 8 bits (fp8_model_init, --fp8-param-gather)")
    yield
