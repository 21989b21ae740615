"""Recompute and states of random numbers."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.checkpoint


class CudaRNGStatesTracker:
    """States of random numbers by name."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.states_: dict[str, Any] = {}

    def get_states(self) -> dict[str, Any]:
        return dict(self.states_)

    def set_states(self, states: dict[str, Any]) -> None:
        self.states_ = states

    def add(self, name: str, seed: int) -> None:
        self.states_[name] = seed

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng") -> Iterator[None]:
        yield


def checkpoint(function: Callable[..., Any], *given: Any, distribute_saved_activations: bool = False,
               get_rng_state_tracker: Any = None, tp_group: Any = None, **named: Any) -> Any:  # fmt: skip
    return torch.utils.checkpoint.checkpoint(function, *given, use_reentrant=False, **named)


@contextlib.contextmanager
def activation_recompute_forward(activation_recompute: bool = False, recompute_phase: bool = False) -> Iterator[None]:
    yield


def is_fp8_activation_recompute_enabled() -> bool:
    return False


in_fp8_activation_recompute_phase = is_fp8_activation_recompute_enabled


def get_all_rng_states() -> dict[str, Any]:
    return {}
