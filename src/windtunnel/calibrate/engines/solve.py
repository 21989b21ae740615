"""Finds the constants of a curve: least squares of log times with a soft loss; shares and times are sought by their logarithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats

Bounds = dict[str, tuple[float, float, float]]
"""(lowest, expected, highest) of each constant."""

LOOSE = 0.05
"""Log error from which a row counts less."""

STARTS, MOST = 2, 60
"""Starts of a search, of which the first is the expected values; evaluations of one."""

PULL = 0.003
"""Weight of the expected values, times the square root of the number of rows, for constants that no row determines."""


def solve_curve(start: Any, bounds: Bounds, predict: Callable[[Any], Floats], seconds: Floats) -> Any:
    """`start` with the constants of `bounds` that fit `seconds` best."""
    from scipy.optimize import least_squares

    names = list(bounds)
    low, mid, high = (np.array([bounds[name][place] for name in names]) for place in range(3))
    by_log = low > 0.0
    floor, top = (np.where(by_log, np.log(np.maximum(edge, 1e-300)), edge) for edge in (low, high))
    expected = (np.where(by_log, np.log(np.maximum(mid, 1e-300)), mid) - floor) / (top - floor)
    target, pull = np.log(seconds), PULL * np.sqrt(len(seconds))

    def curve_at(x: Floats) -> Any:
        values = floor + (top - floor) * x
        values = np.clip(np.where(by_log, np.exp(np.minimum(values, 700.0)), values), low, high)
        return replace(start, **{name: float(value) for name, value in zip(names, values, strict=True)})

    def residuals(x: Floats) -> Floats:
        return np.concatenate([np.log(predict(curve_at(x))) - target, pull * (x - expected)])

    best = None
    for number in range(STARTS):
        begin = expected + (np.random.default_rng(number).normal(0.0, 0.15, len(names)) if number else 0.0)
        found = least_squares(
            residuals, np.clip(begin, 0.01, 0.99), bounds=(0.0, 1.0), loss="soft_l1", f_scale=LOOSE, diff_step=1e-3, max_nfev=MOST
        )
        if best is None or found.cost < best.cost:
            best = found
    return start if best is None else curve_at(best.x)
