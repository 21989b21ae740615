"""Pareto fronts: which of several things no other beats in every number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


def beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `one` is nowhere larger than `other`, and not equal to it."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


def front_first(things: Iterable[Thing], values: Callable[[Thing], Sequence[float]]) -> tuple[list[Thing], int]:
    """The things that no other beats, then the rest, each in the order given; and how many the first are."""
    listed = list(things)
    front: list[Thing] = []
    rest: list[Thing] = []
    for one in listed:
        (rest if any(beats(values(other), values(one)) for other in listed) else front).append(one)
    return front + rest, len(front)
