"""Goodput in closed form, in the long run: the share of time that makes progress.

Exact for failures at constant rates that lose the work since the last durable checkpoint, with any laws of the phases of a
recovery, failures during recoveries and flushes beside training included (`interval`, `recovery`). Stops that save first keep their
work exactly too. Kinds that only pause, slow the job or return, and waits for nodes add their mean time; what they change in each
other's is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from windtunnel.goodput.conditions import Conditions, Rates, loses_work, strikes_recovery
from windtunnel.goodput.interval import Wall, best_interval, smooth, trained_seconds
from windtunnel.goodput.recovery import PHASES, recoveries, undisturbed_seconds

LONGEST = 30 * 86400.0
"""Seconds between checkpoints that are tried at most."""


@dataclass(frozen=True)
class Steady:
    """Long-run shares of wall time. `interval` in seconds of training."""

    ettr: float
    """Share of training that is not lost."""
    goodput: float
    """`ettr` less what slow nodes take."""
    interval: float
    mtbf: float
    """Seconds of wall time between failures."""
    recovery: float
    """Seconds of an undisturbed recovery, without replay."""
    parts: dict[str, float]
    """Shares by name, as the simulation's; they add up to 1."""
    failures: dict[str, float]
    """Failures by kind, in a second of wall time."""

    @property
    def progresses(self) -> bool:
        """False where recoveries fail themselves so often that a run does not end in any useful time."""
        return self.ettr >= WORTHLESS and self.recovery < self.mtbf


WORTHLESS = 0.01


def pace_of(run: Conditions) -> float:
    """Mean pace of training beside slow nodes: one is active for a share 1 - exp(-x) of the time, x = rate times detection
    (Poisson arrivals, M/G/infinity)."""
    pace = 1.0
    for _, kind in run.kinds:
        if kind.slows > 1.0:
            pace *= 1.0 - -math.expm1(-run.rate(kind) * kind.detect.mean) * (1.0 - 1.0 / kind.slows)
    return pace


def rates_of(run: Conditions) -> Rates:
    """What interrupts training, and its pace."""
    loses = sum(run.rate(kind) for _, kind in run.kinds if loses_work(kind))
    saves = sum(run.rate(kind) for _, kind in run.kinds if kind.restarts and kind.saves_first)
    return Rates(loses, saves, pace_of(run))


def steady(run: Conditions) -> Steady:
    """The long-run shares at the run's interval, or at its best one."""
    rates, cost = rates_of(run), run.checkpoint
    phases = _phases(run)
    around = _wall(run, rates, phases)
    interval = run.interval if run.interval is not None else best_interval(run, rates, LONGEST, around)
    training, wall = trained_seconds(interval, rates, cost), around(interval)
    calm = smooth(interval, rates, cost)
    saves = _saving(run, calm)
    drag = min(cost.flush, interval / rates.pace * (1.0 + cost.drag)) * cost.drag / (1.0 + cost.drag)
    if not math.isfinite(training) or not math.isfinite(wall):
        return _hopeless(run, interval)
    once = 1.0 / training  # for each second of training; divided by wall below, since the product may overflow
    replay = max(0.0, training - calm)
    rest = max(0.0, training - interval / rates.pace)  # below calm's where stops that save first stand in for checkpoints
    drag = min(drag, rest)
    parts = {
        "useful": interval * once / wall,
        "slow": (interval / rates.pace - interval) * once / wall,
        "save": (max(0.0, rest - drag - replay) * once + saves) / wall,
        "drag": drag * once / wall,
        "replay": replay * once / wall,
        **{phase: seconds / wall for phase, seconds in phases.items()},
    }
    failures = {name: run.rate(kind) / (1.0 if strikes_recovery(kind) else wall) for name, kind in run.kinds}
    return Steady(
        ettr=parts["useful"] + parts["slow"],
        goodput=parts["useful"],
        interval=interval,
        mtbf=1.0 / sum(failures.values()) if any(failures.values()) else math.inf,
        recovery=_mean_recovery(run),
        parts=parts,
        failures=failures,
    )


def wall_of(run: Conditions) -> Wall:
    """Seconds for each second of training, of an interval."""
    return _wall(run, rates_of(run), _phases(run))


def _wall(run: Conditions, rates: Rates, phases: dict[str, float]) -> Wall:
    recovers = sum(phases.values())
    return lambda interval: 1.0 + _saving(run, smooth(interval, rates, run.checkpoint)) + recovers


def _saving(run: Conditions, calm: float) -> float:
    """Seconds that stops which save first spend on saving, for each second of training; they wait for a flush under way."""
    cost, rate = run.checkpoint, sum(run.rate(kind) for _, kind in run.kinds if kind.saves_first)
    return rate * (cost.save + cost.flush + 0.5 * cost.flush * min(1.0, cost.flush / calm)) if rate > 0.0 else 0.0


def _phases(run: Conditions) -> dict[str, float]:
    """Seconds of each phase of recoveries, for each second of training."""
    down = recoveries(run)
    phases = dict.fromkeys(PHASES, 0.0)
    for name, kind in run.kinds:
        each = run.rate(kind)
        if not kind.restarts or kind.saves_first and kind.slows <= 1.0:
            phases["detect"] += each * kind.detect.mean
        if not kind.restarts:
            phases["repair"] += each * kind.repair.mean
            continue
        for phase, seconds in zip(PHASES, down[name].phases, strict=True):
            phases[phase] += each * seconds
    return phases


def _mean_recovery(run: Conditions) -> float:
    """Mean seconds of an undisturbed recovery over the kinds that lose work."""
    kinds = [kind for _, kind in run.kinds if loses_work(kind)]
    rates = [run.rate(kind) for kind in kinds]
    total = sum(rates)
    return (
        sum(rate / total * seconds for rate, seconds in zip(rates, undisturbed_seconds(run, kinds), strict=True))
        if total > 0.0
        else 0.0
    )


def _hopeless(run: Conditions, interval: float) -> Steady:
    rates = {name: run.rate(kind) for name, kind in run.kinds}
    parts = dict.fromkeys(("useful", "slow", "save", "drag", "replay", *PHASES), 0.0)
    return Steady(0.0, 0.0, interval, 1.0 / sum(rates.values()), _mean_recovery(run), parts, rates)


def at(run: Conditions, interval: float) -> Steady:
    """The long-run shares at another interval."""
    return steady(replace(run, interval=interval))
