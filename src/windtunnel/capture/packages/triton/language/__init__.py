"""Names of Triton's language, of which nothing runs."""

from typing import Any


class constexpr:
    def __init__(self, value: Any = None) -> None:
        self.value = value


_TYPES = ("pointer_type", "block_type")
"""What annotations of kernels call when a kernel is defined."""


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        if self.name in _TYPES:
            return self
        raise RuntimeError(f"triton.language.{self.name} runs in kernels alone")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Named(name)
