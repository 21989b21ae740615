"""Stands in for Triton: kernels are defined, never compiled; a launch is recorded with its arrays."""

from collections.abc import Callable
from typing import Any

from triton import language
from windtunnel.capture.fused import launch_triton

__version__ = "3.5.1"
__all__ = ["Config", "autotune", "cdiv", "heuristics", "jit", "language", "next_power_of_2"]


class JITFunction:
    """A kernel that is launched by `kernel[grid](...)`. `settings`: constants that autotuning or heuristics choose."""

    def __init__(self, fn: Callable[..., Any], settings: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> None:
        self.fn, self.__name__, self.settings = fn, fn.__name__, settings

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *given, **named: self.run(*given, grid=grid, **named)

    def run(self, *given: Any, grid: Any, **named: Any) -> None:
        launch_triton(self.fn, grid, given, named, self.settings)


def jit(fn: Callable[..., Any] | None = None, **_: Any) -> Any:
    return jit if fn is None else JITFunction(fn)


class TunedConstants:
    """Constants of a kernel to try."""

    def __init__(self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 3, **_: Any) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages


Config = TunedConstants


def autotune(configs: list[TunedConstants], key: Any = (), **_: Any) -> Callable[[JITFunction], JITFunction]:
    """The first configuration is taken."""
    first = configs[0].kwargs if configs else {}
    return heuristics({name: lambda _, value=value: value for name, value in first.items()})


def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> Callable[[JITFunction], JITFunction]:
    """Constants that follow from arguments, and from what is decorated outside of it."""

    def decorate(kernel: JITFunction) -> JITFunction:
        def choose(arguments: dict[str, Any]) -> dict[str, Any]:
            chosen = {name: of(arguments) for name, of in values.items()}
            return chosen | (kernel.settings(arguments | chosen) if kernel.settings is not None else {})

        return JITFunction(kernel.fn, choose)

    return decorate


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else 0
