"""Theil's line and Mann and Whitney's test for a few dozen values. scipy.stats has both, but its import takes 1.4 s of a core in
every process that judges a run.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats


def fit_theil_line(places: Floats, values: Floats) -> tuple[float, float]:
    """Slope and intercept of Theil and Sen's line through points [S] at increasing places: the median of all pairs' slopes, and
    the intercept through both medians."""
    first, second = np.triu_indices(len(places), 1)
    slope = float(np.median((values[second] - values[first]) / (places[second] - places[first])))
    return slope, float(np.median(values) - slope * np.median(places))


def chance_of_greater(upper: Floats, lower: Floats) -> float:
    """Exact probability, by Mann and Whitney's test, that values of one distribution are so much greater in `upper` than in
    `lower`. Ties count as half."""
    beats = (upper[:, None] > lower).sum() + 0.5 * (upper[:, None] == lower).sum()
    ways = _ways(*sorted((len(upper), len(lower))))
    return min(1.0, float(ways[int(beats) :].sum() / ways.sum()))


@lru_cache(maxsize=64)
def _ways(few: int, many: int) -> Any:
    """In how many orders of both samples U is 0, 1, … `few * many`: the coefficients of a Gaussian binomial."""
    size = few * many + 1
    ways = np.zeros(size)
    ways[0] = 1.0
    for part in range(1, few + 1):
        up = many + part
        if up < size:
            ways[up:] -= ways[: size - up].copy()
        for at in range(part, size):
            ways[at] += ways[at - part]
    return ways
