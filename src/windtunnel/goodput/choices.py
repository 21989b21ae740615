"""Two figures that somebody has to choose: the time between checkpoints and the number of spare nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from windtunnel.goodput.closed import LONGEST, at, best_interval, flat_range, rates_of, steady, wall_of
from windtunnel.goodput.conditions import Conditions
from windtunnel.goodput.spare_nodes import no_spare, replacing_rate

CURVE_POINTS = 41


@dataclass(frozen=True)
class IntervalChoice:
    """The best interval in seconds of training, its goodput, the range within 1 % of it, and goodput over intervals around it."""

    best: float
    goodput: float
    flat: tuple[float, float]
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class SpareChoice:
    """Goodput with `spares` nodes standing by."""

    spares: int
    goodput: float
    per_node: float
    """Goodput for each node that is paid for, spares included."""
    no_spare: float
    """The chance that a failure finds no spare."""
    share: float
    """Spares as a share of the job's nodes."""


def interval_choice(run: Conditions) -> IntervalChoice:
    """The best time between checkpoints and how much it matters."""
    rates = rates_of(run)
    wall = wall_of(run)
    best = best_interval(run, rates, LONGEST, wall)
    low, high = flat_range(run, rates, best, LONGEST, wall)
    left, right = math.log(max(run.shortest, best / 20.0)), math.log(min(LONGEST, best * 20.0))
    points = [math.exp(left + (right - left) * i / (CURVE_POINTS - 1)) for i in range(CURVE_POINTS)]
    curve = tuple((point, at(run, point).goodput) for point in points)
    return IntervalChoice(best, at(run, best).goodput, (low, high), curve)


def spare_choices(run: Conditions) -> tuple[SpareChoice, ...]:
    """The number of spares with the most goodput for each paid node first, then none, and the job's own number."""
    if replacing_rate(run) <= 0.0:
        return ()
    load = replacing_rate(run) * run.node_repair.mean
    most = min(run.nodes, math.ceil(load + 8.0 * math.sqrt(load) + 8.0))
    step = max(1, most // 200)
    tried = [_with(run, spares) for spares in range(0, most + 1, step)]
    best = max(tried, key=lambda one: one.per_node)
    if step > 1:
        near = range(max(0, best.spares - step), min(most, best.spares + step) + 1)
        best = max((_with(run, spares) for spares in near), key=lambda one: one.per_node)
    others = [_with(run, spares) for spares in sorted({0, run.spares}) if spares != best.spares]
    return (best, *others)


def _with(run: Conditions, spares: int) -> SpareChoice:
    changed = replace(run, spares=spares)
    goodput = steady(changed).goodput
    return SpareChoice(spares, goodput, goodput * run.nodes / (run.nodes + spares), no_spare(changed), spares / run.nodes)
