"""Where the level of a run's steps changes: the test of Pettitt (1979), which ranks values, again on both sides of a change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats

CHANCE = 1e-4
"""Probability below which a change is no chance."""

HALVINGS = 4
"""How often windows of a part are halved in the search."""

CHANCE_OF_A_WINDOW = 1e-6
"""The same of a window, of which there are many."""

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
    cuts = _cuts_of(seconds)
    while True:
        edges = [0, *cuts, len(seconds)]
        levels = [float(np.median(seconds[begin:end])) for begin, end in zip(edges, edges[1:], strict=False)]
        apart = [abs(after - before) / before if before > 0.0 else 0.0 for before, after in zip(levels, levels[1:], strict=False)]
        if not apart or min(apart) >= LEAST_RATIO:
            break
        del cuts[apart.index(min(apart))]  # neighbours that are alike are one level
    return tuple(StepChange(at, levels[n], levels[n + 1]) for n, at in enumerate(cuts))


def _cuts_of(seconds: Floats) -> list[int]:
    """Where the series may change, in order. A part between two changes back and forth splits where the test says, alike or not."""
    cuts: list[int] = []
    open_parts = [(0, len(seconds))]
    while open_parts and len(cuts) < MOST:
        begin, end = open_parts.pop(0)
        if (at := _find_cut(seconds, begin, end)) is None:
            continue
        cuts.append(at)
        open_parts += [(begin, at), (at, end)]
    edges = [0, *sorted(cuts), len(seconds)]
    return [  # each once more between its neighbours, whose levels are purer than those of the part that was split
        _settle(seconds, *edges[n - 1 : n + 2]) for n in range(1, len(edges) - 1)
    ]


def _find_cut(seconds: Floats, begin: int, end: int) -> int | None:
    """Where a part changes: as a whole, or else in a half, a quarter, … of it, where a change back does not hide the change."""
    wide, chance = end - begin, CHANCE
    for _ in range(HALVINGS + 1):
        firsts = range(begin, end - wide + 1, max(1, wide // 2))
        for first in firsts:
            if (at := _pettitt(seconds[first : first + wide], chance)) is not None:
                return first + at
        wide, chance = wide // 2, CHANCE_OF_A_WINDOW
    return None


def _settle(seconds: Floats, begin: int, at: int, end: int) -> int:
    """Where the levels on both sides explain a part best, by absolute distances, to which a peak counts alike on either side."""
    before, after = float(np.median(seconds[begin:at])), float(np.median(seconds[at:end]))
    part = seconds[begin:end]
    worse = np.cumsum(np.abs(part - before) - np.abs(part - after))[LEAST - 1 : len(part) - LEAST]
    return begin + LEAST + int(np.argmin(worse)) if len(worse) and before != after else at


def _pettitt(part: Floats, least: float) -> int | None:
    """The likeliest change of a part, or None where chance explains it by more than `least`."""
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
    return at + 1 if chance < least else None
