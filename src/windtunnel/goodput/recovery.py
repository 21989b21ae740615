"""Seconds of a recovery by phase, with failures that come during it.

A recovery has independent phases X1, X2, ... Failures that strike it come at a constant rate L. With f_i = E[exp(-L X_i)], the
chance to reach phase i is f_1 ... f_(i-1), and the seconds in it are that times (1 - f_i) / L. A recovery that is cut short begins
anew with the kind that came, and still owes the node that the first one did not get: R1 and R0 are the mean seconds from such a cut
with and without a node owed. A start of kind k adds its own seconds, and leads to R1 or R0 with the chances that it is cut before
or after its node is there; the means over kinds by rate give two linear equations for R1 and R0. For one kind of fixed length R
that needs no node this is Daly's (exp(L R) - 1) / L.

The wait for another node, from spares, repairs and the queue.

A failed node is one of `n` in repair until it is back; with S spares the job waits while n > S. Failures that need a node come at
rate L, repairs end at rate n / T, and while the job waits the queue gives a node at rate 1 / Q, in place of one in repair. This is
a birth-death process (Palm's model of a queue with impatient customers, 1957). Without a queue n is Poisson with mean L T for any
law of the repairs; with a queue of no time it is Erlang's loss system.

The durations' Laplace transforms: the chance that a failure at a constant rate comes during one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.goodput.conditions import Conditions, strikes_recovery
from windtunnel.spec.reliability import Duration, Failure


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


PHASES = ("detect", "diagnose", "repair", "wait", "init", "load")
Seconds6 = tuple[float, float, float, float, float, float]
_NODE = PHASES.index("wait")


@dataclass(frozen=True)
class Recovery:
    """Mean seconds of a recovery, those of later failures during it included, by phase; `starts`: how often it is begun."""

    phases: Seconds6
    starts: float

    @property
    def seconds(self) -> float:
        return sum(self.phases)


@dataclass(frozen=True)
class _Start:
    """One start of a recovery: seconds by phase until it ends or is cut short, and the chances that it ends, that it is cut
    while it owes a node, and that it is cut otherwise."""

    phases: Seconds6
    ends: float
    owing: float
    free: float


@dataclass(frozen=True)
class _Shared:
    """Phases that do not depend on the kind; `blocked`: the chance of a wait for a node."""

    blocked: float
    node: Wait
    swap: Wait
    init: Wait
    load: Wait

    @classmethod
    def of(cls, run: Conditions) -> _Shared:
        load = Wait(Duration(mean=run.checkpoint.load))
        return cls(no_spare(run), waiting(run), Wait(run.swap), Wait(run.init), load)


def recoveries(run: Conditions) -> dict[str, Recovery]:
    """The recovery of each kind that restarts the job."""
    strikers = [(kind, run.rate(kind)) for _, kind in run.kinds if strikes_recovery(kind)]
    rate = sum(each for _, each in strikers)
    shared = _Shared.of(run)
    begun = {name: _start(shared, kind, rate, kind.replaces_node) for name, kind in run.kinds if kind.restarts}
    if rate <= 0.0:
        return {name: Recovery(one.phases, 1.0) for name, one in begun.items()}
    owing = _mean([(each / rate, _start(shared, kind, rate, True)) for kind, each in strikers])
    free = _mean([(each / rate, _start(shared, kind, rate, kind.replaces_node)) for kind, each in strikers])
    after_owing, after_free = _further(owing, free)
    answer = {}
    for name, one in begun.items():
        phases = _sum(one.phases, _scale_phases(after_owing.phases, one.owing), _scale_phases(after_free.phases, one.free))
        answer[name] = Recovery(phases, 1.0 + one.owing * after_owing.starts + one.free * after_free.starts)
    return answer


def _further(owing: _Start, free: _Start) -> tuple[Recovery, Recovery]:
    """All that follows a cut with a node owed, and without: x = a + A x for the two, by Cramer's rule."""
    determinant = (1.0 - owing.owing) * (1.0 - free.free) - owing.free * free.owing
    if determinant <= 1e-300:
        endless = (math.inf,) * 6
        return Recovery(endless, math.inf), Recovery(endless, math.inf)

    def solve_pair(a: float, b: float) -> tuple[float, float]:
        return ((1.0 - free.free) * a + owing.free * b) / determinant, ((1.0 - owing.owing) * b + free.owing * a) / determinant

    pairs = [solve_pair(a, b) for a, b in zip(owing.phases, free.phases, strict=True)]
    starts = solve_pair(1.0, 1.0)
    return Recovery(_six([a for a, _ in pairs]), starts[0]), Recovery(_six([b for _, b in pairs]), starts[1])


def undisturbed_seconds(run: Conditions, kinds: Sequence[Failure]) -> list[float]:
    """Mean seconds of a recovery of each kind without failures during it."""
    shared = _Shared.of(run)
    return [sum(_start(shared, kind, 0.0, kind.replaces_node).phases) for kind in kinds]


def _start(shared: _Shared, kind: Failure, rate: float, owes: bool) -> _Start:
    detected = kind.slows > 1.0 or kind.saves_first
    steps: tuple[tuple[tuple[float, Wait], ...], ...] = (
        () if detected else ((1.0, Wait(kind.detect)),),
        ((1.0, Wait(kind.diagnose)), (1.0 - kind.automatic, Wait(kind.by_hand))),
        ((1.0, Wait(kind.repair)),),
        ((shared.blocked, shared.node), (1.0, shared.swap)) if owes else (),
        ((1.0, shared.init),),
        ((1.0, shared.load),),
    )
    reached, phases, has_node = 1.0, [], 1.0
    for at, step in enumerate(steps):
        seconds = 0.0
        for share, one in step:
            if share > 0.0 and one.duration.mean > 0.0:
                each = share * one.spent(rate)
                seconds += reached * each
                if at == _NODE and one is shared.swap:
                    has_node = reached
                reached *= max(0.0, 1.0 - rate * each)
        if at == _NODE and not (step and shared.swap.duration.mean > 0.0):
            has_node = reached
        phases.append(seconds)
    owing = 1.0 - has_node if owes else 0.0
    return _Start(_six(phases), reached, owing, max(0.0, 1.0 - reached - owing))


def _mean(parts: list[tuple[float, _Start]]) -> _Start:
    return _Start(
        _sum(*(_scale_phases(one.phases, share) for share, one in parts)),
        sum(share * one.ends for share, one in parts),
        sum(share * one.owing for share, one in parts),
        sum(share * one.free for share, one in parts),
    )


def _scale_phases(phases: Seconds6, factor: float) -> Seconds6:
    return _six([each * factor if factor else 0.0 for each in phases])


def _sum(*several: Seconds6) -> Seconds6:
    return _six([sum(column) for column in zip(*several, strict=True)])


def _six(values: list[float]) -> Seconds6:
    a, b, c, d, e, f = values
    return (a, b, c, d, e, f)
