"""Least squares of `fit.py`: in log time, with a robust loss and bounded constants; errors on held-out groups.

scipy is imported lazily, because predictions do not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.calibrate.kernels.samples import Samples
from windtunnel.compute.curves import ErrorStatistics

Bounds = dict[str, tuple[float, float, float]]
"""Constant -> lowest, expected, highest. The expected value starts the search, and is a weak prior for constants without data."""

PULL = 0.01
"""Weight of the prior: this times the square root of the number of samples, per width of the bounds."""

FOLDS = 5


def log_errors(predicted: Floats, rows: Samples) -> Floats:
    """ln(predicted / measured): symmetric between too fast and too slow."""
    return np.asarray(np.log(predicted / rows.seconds), dtype=np.float64)


def statistics(errors: Floats) -> ErrorStatistics:
    """Count, median and 90 % quantile of the size, and mean, in per cent."""
    size = np.abs(errors)
    return ErrorStatistics(
        float(len(errors)), *(float(100.0 * x) for x in (np.median(size), np.quantile(size, 0.9), np.mean(errors)))
    )


def sigma(errors: Floats) -> float:
    """Share that 68 % of the errors stay below: one sigma, robustly."""
    return float(np.quantile(np.abs(errors), 0.68))


def solve(
    start: Any, bounds: Bounds, predict: Callable[[Any], Floats], seconds: Floats, weight: Floats | None = None, starts: int = 3
) -> Any:
    """`start` (a curve) with the constants named in `bounds` fitted so that `predict(curve)` matches `seconds`."""
    from scipy.optimize import least_squares

    names = list(bounds)
    low, mid, high = (np.array([bounds[name][i] for name in names]) for i in range(3))
    target = np.log(seconds)
    pull = PULL * np.sqrt(len(seconds))

    def curve(x: Floats) -> Any:
        return replace(start, **{name: float(v) for name, v in zip(names, low + (high - low) * x, strict=True)})

    expected = np.clip((mid - low) / (high - low), 0.0, 1.0)

    def residuals(x: Floats) -> Floats:
        miss = np.log(predict(curve(x))) - target
        return np.concatenate([miss if weight is None else miss * weight, pull * (x - expected)])

    best = None
    for seed in range(starts):
        begin = expected + (np.random.default_rng(seed).normal(0.0, 0.1, len(names)) if seed else 0.0)
        solution = least_squares(
            residuals, np.clip(begin, 0.01, 0.99), bounds=(0.0, 1.0), loss="soft_l1", f_scale=0.05, diff_step=3e-3, max_nfev=60
        )
        if best is None or solution.cost < best.cost:
            best = solution
    return start if best is None else curve(best.x)


def held_out(rows: Samples, fit: Callable[[Samples], Any], predict: Callable[[Any, Samples], Floats]) -> Floats:
    """Log errors of every row under constants fitted without its group, in at most five folds over the groups."""
    groups: Sequence[str] = sorted(set(rows.group))
    folds = min(FOLDS, len(groups))
    order = np.random.default_rng(0).permutation(len(groups))
    fold = {groups[g]: i % folds for i, g in enumerate(order)}
    where = np.array([fold[group] for group in rows.group])
    errors = np.zeros(len(rows))
    for i in range(folds):
        test = rows.take(where == i)
        errors[where == i] = log_errors(predict(fit(rows.take(where != i)), test), test)
    return errors


def thin_samples(rows: Samples, most: int = 40) -> Samples:
    """At most `most` rows of each group and pass, spread evenly over the logarithm of their tokens, so that a dense sweep has no
    more weight."""
    keys: dict[tuple[str, str, str], list[int]] = {}
    tokens = rows.tokens
    for i, key in enumerate(zip(rows.group, rows.phase, rows.library, strict=True)):
        keys.setdefault(key, []).append(i)
    kept: list[int] = []
    for rows_of_key in keys.values():
        rows_of_key.sort(key=lambda i: tokens[i])
        logs = np.log(np.maximum(tokens[rows_of_key], 1.0))
        marks = np.linspace(logs[0], logs[-1], most)
        kept += (
            rows_of_key
            if len(rows_of_key) <= most
            else sorted({rows_of_key[int(np.argmin(np.abs(logs - mark)))] for mark in marks})
        )
    return rows.take(np.array(sorted(kept), np.int64))
