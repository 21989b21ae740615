"""Where the level of a run's steps changes: the test of Pettitt (1979), which ranks values, again on both sides of a change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats

CHANCE = 1e-4
"""Probability below which a change is no chance."""

LEAST = 5
"""Steps of a level at least: fewer are a warm-up or a peak."""

LEAST_RATIO = 0.01
"""Share by which levels differ at least; less changes nobody's plan."""

MOST = 20
"""Changes of a run at most."""


@dataclass(frozen=True)
class StepChange:
    """The level of steps changes at number `at` of the series, from `before` to `after` seconds (medians of both sides)."""

    at: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After over before."""
        return self.after / self.before


def changes_of(seconds: Floats) -> tuple[StepChange, ...]:
    """Changes of the level of finite seconds [S], in their order; none of a series that only varies."""
    cuts: list[int] = []
    _cut(seconds, 0, cuts)
    edges = [0, *sorted(cuts)[:MOST], len(seconds)]
    levels = [float(np.median(seconds[begin:end])) for begin, end in zip(edges, edges[1:], strict=False)]
    return tuple(StepChange(at, levels[n], levels[n + 1]) for n, at in enumerate(edges[1:-1]) if levels[n] > 0.0)


def _cut(seconds: Floats, first: int, cuts: list[int]) -> None:
    """Adds the changes of a part that begins at `first`."""
    open_parts = [(seconds, first)]
    while open_parts and len(cuts) < MOST:
        part, begin = open_parts.pop()
        at = _pettitt(part)
        if at is None:
            continue
        before, after = float(np.median(part[:at])), float(np.median(part[at:]))
        at = _settle(part, before, after)
        if abs(after - before) < LEAST_RATIO * before:
            continue
        cuts.append(begin + at)
        open_parts += [(part[:at], begin), (part[at:], begin + at)]


def _settle(part: Floats, before: float, after: float) -> int:
    """Where the two levels explain the part best, by absolute distances, to which a peak counts alike on either side."""
    worse = np.cumsum(np.abs(part - before) - np.abs(part - after))[LEAST - 1 : len(part) - LEAST]
    return LEAST + int(np.argmin(worse))


def _pettitt(part: Floats) -> int | None:
    """The likeliest change of a part, or None where chance explains it."""
    count = len(part)
    if count < 2 * LEAST:
        return None
    _, which, each = np.unique(part, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(each) - (each - 1) / 2.0)[which]  # equal values share their mean rank
    split = np.arange(1, count)
    apart = np.abs(2.0 * np.cumsum(ranks)[:-1] - split * (count + 1.0))
    apart[: LEAST - 1] = apart[count - LEAST :] = 0.0
    at = int(np.argmax(apart))
    chance = 2.0 * math.exp(-6.0 * float(apart[at]) ** 2 / (float(count) ** 3 + float(count) ** 2))
    return at + 1 if chance < CHANCE else None
