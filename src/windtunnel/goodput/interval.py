"""The time between checkpoints: how long an interval takes with failures, and the interval that loses least.

Failures that lose work come at rate L in training. A checkpoint delays training by a = save + drag, and is durable F seconds
after its save. From a start, the next durable moment is g = t + save + F away; from one durable moment to the next it is c = t
+ a. The time until a failure is 1 / L in the mean, and before it exp(-L g) / (1 - exp(-L c)) durable moments are reached, each
worth t. So an interval takes, recoveries apart,

    A(t) = (1 - exp(-L c)) exp(L g) / L

For F = 0 this is Daly's (exp(L (t + a)) - 1) / L (Daly 2006, equation 20). A recovery of B seconds adds L B A(t), so that
neither B nor F moves the best t: A(t) / t is least where x = L t solves (1 - x) exp(x) = exp(-L a), x = 1 + W(-exp(-1 - L a)).
For small L a that is Young's sqrt(2 a / L) (Young 1974).

Stops that save first, at rate m, keep what was trained since the last durable moment, p(u) after u seconds. The time until
either is 1 / (L + m); the work kept before it is t for each durable moment, with L + m for L, and m times the integral of p(u)
exp(-(L + m) u) over the way to the first durable moment, and over that between two for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from windtunnel.goodput.conditions import CheckpointCost, Conditions, Rates

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
