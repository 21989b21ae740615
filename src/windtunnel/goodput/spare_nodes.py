"""The wait for another node, from spares, repairs and the queue.

A failed node is one of `n` in repair until it is back; with S spares the job waits while n > S. Failures that need a node come at
rate L, repairs end at rate n / T, and while the job waits the queue gives a node at rate 1 / Q, in place of one in repair. This is
a birth-death process (Palm's model of a queue with impatient customers, 1957). Without a queue n is Poisson with mean L T for any
law of the repairs; with a queue of no time it is Erlang's loss system.

The durations' Laplace transforms: the chance that a failure at a constant rate comes during one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from windtunnel.goodput.conditions import Conditions
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


def replacing_rate(run: Conditions) -> float:
    """Failures a second that need another node."""
    return sum(run.rate(kind) for _, kind in run.kinds if kind.replaces_node)


def no_spare(run: Conditions) -> float:
    """The chance that a failure finds no spare: that of n >= S, by b(n) = P(n) / P(at most n), b(n) = L b(n-1) / (d(n) + L
    b(n-1)) with d(n) the rate at which n falls."""
    rate, repair = replacing_rate(run), run.node_repair.mean
    if rate <= 0.0 or repair <= 0.0:
        return 0.0 if run.spares else 1.0
    gives = 0.0 if run.queue is None else 1.0 / max(run.queue.mean, 1e-9)
    share, below, n = 1.0, 1.0, 0
    while True:
        if n > 0:
            falls = n / repair + (gives if n > run.spares else 0.0)
            share = rate * share / (falls + rate * share)
        if n >= run.spares:
            below *= 1.0 - share
            if share < 1e-9 or below <= 0.0 or n > run.spares + 10_000:
                return 1.0 - below
        n += 1


@dataclass(frozen=True)
class Wait:
    """A time that ends by itself, or sooner at `ends` (1/s)."""

    duration: Duration
    ends: float = 0.0

    def spent(self, rate: float) -> float:
        """Mean seconds until it ends or a failure of `rate` comes."""
        return spent(self.duration, rate + self.ends)


def waiting(run: Conditions) -> Wait:
    """The wait of a failure that finds no spare: for the queue, or for the first of the S + 1 repairs if that is sooner.

    Repairs that have been going on for an unknown time are taken to end at the constant rate (S + 1) / T.
    """
    repair = run.node_repair
    first = Duration(mean=repair.mean / (run.spares + 1), law="exponential")
    if run.queue is None:
        return Wait(repair if run.spares == 0 else first)
    if first.mean <= 0.0:
        return Wait(Duration())
    if run.spares == 0 and repair.law == "fixed":
        return Wait(run.queue if run.queue.mean <= repair.mean else repair)
    return Wait(run.queue, 1.0 / first.mean)
