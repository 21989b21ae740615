"""The durations' Laplace transforms: the chance that a failure at a constant rate comes during one."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from windtunnel.spec.reliability import Duration


@cache
def _normal_points() -> list[tuple[float, float]]:
    """Gauss-Hermite points of a standard normal, and their weights."""
    points, weights = np.polynomial.hermite_e.hermegauss(31)  # here: numpy imports its polynomials for it
    return [(float(z), float(weight)) for z, weight in zip(points, weights / weights.sum(), strict=True)]


def failure_chance(duration: Duration, rate: float) -> float:
    """1 - E[exp(-rate X)]: the chance that a failure of `rate` (1/s) comes during X, without cancellation where it is small."""
    mean, spread = duration.mean, duration.spread
    if mean <= 0.0 or rate <= 0.0:
        return 0.0
    product = rate * mean
    if duration.law == "exponential":
        return product / (1.0 + product)
    if duration.law == "lognormal" and spread > 0.0:
        return min(
            1.0,
            sum(weight * -math.expm1(-product * math.exp(spread * z - 0.5 * spread * spread)) for z, weight in _normal_points()),
        )
    if duration.law == "uniform" and spread > 0.0:
        half = product * spread
        if half > 1.0:
            return 1.0 - (math.exp(half - product) - math.exp(-half - product)) / (2.0 * half)
        wider = math.sinh(half) / half - 1.0 if half > 0.01 else half * half / 6.0 * (1.0 + half * half / 20.0)
        return -math.expm1(-product) - math.exp(-product) * wider
    return -math.expm1(-product)


def spent(duration: Duration, rate: float) -> float:
    """E[min(X, time of the first failure)]: seconds in a step of a recovery, which a failure may cut short."""
    return failure_chance(duration, rate) / rate if rate > 0.0 else duration.mean
