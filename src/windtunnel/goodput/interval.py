"""The time between checkpoints: how long an interval takes with failures, and the interval that loses least.

Let failures that lose work come at rate L, a checkpoint delay training by a = save + drag, and be durable F seconds after its
save. From one durable moment to the next undisturbed training takes c = t + a; after a failure, from the start of the interval,
it takes g = t + save + F. A first attempt of length c succeeds with chance exp(-L c); each later one, of length g, with exp(-L
g). Training time until one succeeds, recoveries apart:

    A(t) = (1 - exp(-L c)) exp(L g) / L

For F = 0 this is Daly's (exp(L (t + a)) - 1) / L (Daly 2006, equation 20). A recovery of B seconds adds L B A(t), so that
neither B nor F moves the best t: A(t) / t is least where x = L t solves (1 - x) exp(x) = exp(-L a), x = 1 + W(-exp(-1 - L a)).
For small L a that is Young's sqrt(2 a / L) (Young 1974).
"""

from __future__ import annotations

import math

from windtunnel.goodput.conditions import CheckpointCost, Conditions

_TINY = 1e-9
LOSS = 0.01
"""Loss of ETTR that counts as flat."""


def trained(interval: float, rate: float, pace: float, cost: CheckpointCost) -> float:
    """A(t): seconds of training, lost ones included, for an interval of work at `pace` (1: no slow nodes)."""
    wall = interval / pace
    c, g = wall + cost.price, wall + cost.save + cost.flush
    if rate * g < _TINY:
        return c
    exponent = rate * g
    if exponent > 700.0:
        return math.inf
    return -math.expm1(-rate * c) * math.exp(exponent) / rate


def best_interval(run: Conditions, rate: float, pace: float, longest: float) -> float:
    """Seconds of training between checkpoints that lose least, from `run.shortest` up to `longest`; the longest without
    failures."""
    price = run.checkpoint.price
    if rate * price <= 0.0:
        return longest if rate <= 0.0 else run.shortest
    return min(max(pace * _root(rate * price) / rate, run.shortest), longest)


def _root(product: float) -> float:
    """x in (0, 1) with (1 - x) exp(x) = exp(-product), by Newton's method from Young's sqrt(2 product)."""
    if product > 30.0:  # 1 - x is below a float's resolution
        return 1.0
    x = min(math.sqrt(2.0 * product), 0.9) if product < 1.0 else 1.0 - math.exp(-1.0 - product)
    for _ in range(60):
        # log(1 - x) + x + product = 0: concave, so that Newton converges from any point of (0, 1)
        value, slope = math.log1p(-x) + x + product, -x / (1.0 - x)
        new = x - value / slope
        new = min(max(new, 0.5 * x), 0.5 * (1.0 + x))
        if abs(new - x) <= 1e-9 * x:
            return new
        x = new
    return x


def flat_range(run: Conditions, rate: float, pace: float, best: float, longest: float) -> tuple[float, float]:
    """The shortest and the longest interval whose ETTR is within 1 % of the best one's."""

    def loss(interval: float) -> float:
        return trained(interval, rate, pace, run.checkpoint) / interval

    limit = loss(best) / (1.0 - LOSS)
    return _edge(loss, limit, best, run.shortest), _edge(loss, limit, best, longest)


def _edge(loss: object, limit: float, inside: float, outside: float) -> float:
    if not callable(loss) or loss(outside) <= limit:
        return outside
    low, high = math.log(inside), math.log(outside)
    for _ in range(50):
        middle = 0.5 * (low + high)
        if loss(math.exp(middle)) <= limit:
            low = middle
        else:
            high = middle
    return math.exp(low)
