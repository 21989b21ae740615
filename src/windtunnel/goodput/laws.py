"""Laplace transforms of the durations: the chance that a recovery step ends before a failure comes at a constant rate."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.spec.reliability import Duration

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_NODES: tuple[tuple[float, float], ...] = tuple(zip(_POINTS.tolist(), (_WEIGHTS / _WEIGHTS.sum()).tolist(), strict=True))
"""Gauss-Hermite points of a standard normal."""

_SMALL = 1e-12


def transform(duration: Duration, rate: float) -> float:
    """E[exp(-rate X)]: the chance that no failure of `rate` (1/s) comes during X."""
    mean, spread = duration.mean, duration.spread
    if mean <= 0.0 or rate <= 0.0:
        return 1.0
    product = rate * mean
    if duration.law == "exponential":
        return 1.0 / (1.0 + product)
    if duration.law == "lognormal" and spread > 0.0:
        return float(sum(weight * math.exp(-product * math.exp(spread * z - 0.5 * spread * spread)) for z, weight in _NODES))
    if duration.law == "uniform" and spread > 0.0:
        half = product * spread
        return (math.exp(half - product) - math.exp(-half - product)) / (2.0 * half)
    return math.exp(-product)


def spent(duration: Duration, rate: float) -> float:
    """E[min(X, time of the first failure)]: seconds in a step of a recovery, which a failure may cut short."""
    if rate * duration.mean <= _SMALL:
        return duration.mean
    return (1.0 - transform(duration, rate)) / rate
