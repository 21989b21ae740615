"""Sequences that are computed from plain data when they are first read: timelines run to hundreds of thousands of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

T = TypeVar("T")


class OnDemand(Sequence[T], Generic[T]):
    """A tuple that is computed from the object's fields on first use; only the fields are pickled and compared."""

    @abstractmethod
    def _make(self) -> tuple[T, ...]: ...

    def _all(self) -> tuple[T, ...]:
        if "_items" not in self.__dict__:
            self.__dict__["_items"] = self._make()
        items: tuple[T, ...] = self.__dict__["_items"]
        return items

    def _key(self) -> Any:
        """The plain data that equality compares."""
        return self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_items"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return _is_equal(self._key(), other._key())
        return tuple(other) == self._all() if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


def _is_equal(one: Any, other: Any) -> bool:
    """Equality of nested plain data that may contain arrays."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)
