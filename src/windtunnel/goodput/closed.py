"""Goodput in closed form, in the long run: the share of time that makes progress.

Exact for failures at constant rates that lose the work since the last durable checkpoint, with any laws of the phases of a
recovery, failures during recoveries and flushes beside training included (`recovery`). Stops that save first keep their
work exactly too. Kinds that only pause, slow the job or return, and waits for nodes add their mean time; what they change in each
other's is left out.

The time between checkpoints: how long an interval takes with failures, and the interval that loses least.

Failures that lose work come at rate L in training. A checkpoint delays training by a = save + drag, and is durable F seconds after
its save. From a start, the next durable moment is g = t + save + F away; from one durable moment to the next it is c = t + a. The
time until a failure is 1 / L in the mean, and before it exp(-L g) / (1 - exp(-L c)) durable moments are reached, each worth t. So
an interval takes, recoveries apart,

    A(t) = (1 - exp(-L c)) exp(L g) / L

For F = 0 this is Daly's (exp(L (t + a)) - 1) / L (Daly 2006, equation 20). A recovery of B seconds adds L B A(t), so that neither B
nor F moves the best t: A(t) / t is least where x = L t solves (1 - x) exp(x) = exp(-L a), x = 1 + W(-exp(-1 - L a)). For small L a
that is Young's sqrt(2 a / L) (Young 1974).

Stops that save first, at rate m, keep what was trained since the last durable moment, p(u) after u seconds. The time until either
is 1 / (L + m); the work kept before it is t for each durable moment, with L + m for L, and m times the integral of p(u) exp(-(L +
m) u) over the way to the first durable moment, and over that between two for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.goodput.conditions import CheckpointCost, Conditions, Rates, loses_work, strikes_recovery
from windtunnel.goodput.recovery import PHASES, recoveries, undisturbed_seconds

_TINY = 1e-9
_FAR = 700.0
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
LOSS = 0.01
"""Loss of ETTR that counts as flat."""

Segment = tuple[float, float, float]
"""Seconds, work at their begin, work a second."""
Wall = Callable[[float], float]
"""Seconds for each second of training, of an interval: training, stops that save first, and recoveries."""


def trained_seconds(interval: float, rates: Rates, cost: CheckpointCost) -> float:
    """A(t): seconds of training, lost ones included, for an interval of work; infinite where none is ever kept."""
    wall = interval / rates.pace
    c, g = smooth(interval, rates, cost), wall + cost.save + cost.flush
    rate = rates.loses + rates.saves
    if rate * g < _TINY:
        return c
    if rate * g > _FAR:
        return math.inf
    if rates.saves <= 0.0:
        return -math.expm1(-rate * c) * math.exp(rate * g) / rate
    moments = math.exp(-rate * g) / -math.expm1(-rate * c)
    beside = rates.pace / (1.0 + cost.drag)
    flushing: Segment = (cost.flush, interval, beside)
    saving: Segment = (cost.save, interval, 0.0)
    ahead = min(beside * cost.flush, interval)  # work beside the flush, before the durable moment
    begun = _kept_work(((wall, 0.0, rates.pace), saving, flushing), rate)
    between = _kept_work(((wall - ahead / rates.pace, ahead, rates.pace), saving, flushing), rate)
    work = interval * moments + rates.saves * (begun + moments * between)
    return interval / rate / work


def smooth(interval: float, rates: Rates, cost: CheckpointCost) -> float:
    """c: seconds from one durable moment to the next without failures; a save waits for the flush before it."""
    return max(interval / rates.pace + cost.price, cost.flush + cost.save)


def _kept_work(segments: Sequence[Segment], rate: float) -> float:
    """The integral of the work since the last durable moment, weighed with exp(-rate u)."""
    total, decay = 0.0, 1.0
    for seconds, begin, slope in segments:
        x = rate * seconds
        fades = math.exp(-x)
        ramp = x * x * (0.5 - x / 3.0) if x < 1e-4 else 1.0 - fades * (1.0 + x)
        total += decay * (begin * -math.expm1(-x) / rate + slope * ramp / rate**2)
        decay *= fades
    return total


def best_interval(run: Conditions, rates: Rates, longest: float, wall: Wall) -> float:
    """Seconds of training between checkpoints that lose least, from `run.shortest` up to `longest`; the longest without
    failures. `wall(t)`: seconds for each second of training; it moves the best t only where stops save first."""
    cost = run.checkpoint
    if rates.loses * cost.price <= 0.0:
        return longest if rates.loses <= 0.0 else run.shortest
    best = rates.pace * _root(rates.loses * cost.price) / rates.loses
    if rates.saves > 0.0:  # stops that save first leave less to lose, so that the best is longer
        best = _least(lambda each: trained_seconds(each, rates, cost) / each * wall(each), 0.5 * best, 4.0 * best)
    return min(max(best, run.shortest), longest)


def _root(product: float) -> float:
    """x in (0, 1) with (1 - x) exp(x) = exp(-product), by Newton's method from Young's sqrt(2 product)."""
    if product > 30.0:  # 1 - x is below a float's resolution
        return 1.0
    x = min(math.sqrt(2.0 * product), 0.9) if product < 1.0 else 1.0 - math.exp(-1.0 - product)
    for _ in range(60):
        value, slope = math.log1p(-x) + x + product, -x / (1.0 - x)  # of the logarithm, which is concave
        new = min(max(x - value / slope, 0.5 * x), 0.5 * (1.0 + x))
        if abs(new - x) <= 1e-9 * x:
            return new
        x = new
    return x


def _least(loss: Callable[[float], float], low: float, high: float) -> float:
    """Where a loss with one valley is least, by golden section in the logarithm; 1 part in 1,000."""
    a, b = math.log(low), math.log(high)
    left, right = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    at_left, at_right = loss(math.exp(left)), loss(math.exp(right))
    while b - a > 1e-3:
        if at_left <= at_right:
            b, right, at_right = right, left, at_left
            left = b - _GOLDEN * (b - a)
            at_left = loss(math.exp(left))
        else:
            a, left, at_left = left, right, at_right
            right = a + _GOLDEN * (b - a)
            at_right = loss(math.exp(right))
    return math.exp(0.5 * (a + b))


def flat_range(run: Conditions, rates: Rates, best: float, longest: float, wall: Wall) -> tuple[float, float]:
    """The shortest and the longest interval whose ETTR is within 1 % of the best one's."""

    def loss(interval: float) -> float:
        return trained_seconds(interval, rates, run.checkpoint) / interval * wall(interval)

    limit = loss(best) / (1.0 - LOSS)
    return _edge(loss, limit, best, run.shortest), _edge(loss, limit, best, longest)


def _edge(loss: Callable[[float], float], limit: float, inside: float, outside: float) -> float:
    """The last interval on the way from `inside` to `outside` whose loss is within the limit."""
    if loss(outside) <= limit:
        return outside
    low, high = math.log(inside), math.log(outside)
    for _ in range(50):
        middle = 0.5 * (low + high)
        if loss(math.exp(middle)) <= limit:
            low = middle
        else:
            high = middle
    return math.exp(low)


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
