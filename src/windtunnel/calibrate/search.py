"""Coordinate search over grids of round values, for fits in which most constants should not change."""

from __future__ import annotations

from collections.abc import Callable

GAIN = 0.1
"""Percentage points of error by which a change must improve."""

Values = dict[str, float]


def _steps(first: float, last: float, step: float, scale: float = 1.0) -> tuple[float, ...]:
    return tuple(round((first + step * i) * scale, 9) for i in range(round((last - first) / step) + 1))


GRIDS: dict[str, tuple[float, ...]] = {
    "launch": _steps(4, 40, 2, 1e-6),
    "layer": _steps(0, 1500, 100, 1e-6),
    "micro_batch": _steps(0, 2000, 250, 1e-6),
    "step": _steps(1, 20, 1, 1e-3),
    "collective": _steps(0, 100, 10, 1e-6),
}
"""Values that each constant may take, in SI units."""


def search(start: Values, error: Callable[[Values], float], gain: float = GAIN) -> Values:
    """Coordinate search over `GRIDS`: each field moves to better neighbours, if that gains more than `gain`."""
    best, least = dict(start), error(start)
    moved = True
    while moved:
        moved = False
        for field in start:
            trial, reached = _walk(best, field, error, least)
            if reached < least - gain:
                best, least, moved = trial, reached, True
    return best


def _walk(start: Values, field: str, error: Callable[[Values], float], least: float) -> tuple[Values, float]:
    grid = sorted({*GRIDS[field], round(start[field], 9)})
    best = start
    for direction in (1, -1):
        at = grid.index(round(best[field], 9)) + direction
        while 0 <= at < len(grid):
            trial = {**best, field: grid[at]}
            if (reached := error(trial)) >= least:
                break
            best, least, at = trial, reached, at + direction
    return best, least
