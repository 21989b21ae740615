"""Which numbers of GPUs of a machine to try for a wish, and when to stop.

A guess comes first; from there the count moves until the budget or the deadline binds, up or down. Before a machine is said to
miss the targets, every count of a grid that could still meet them is tried. Whether one could follows from the rates that were
found: a GPU is about as fast at a count as at its neighbours, and a plan that does not fit fits on fewer GPUs even less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import WindtunnelError
from windtunnel.search.budget.wish import Alternative, Wish

ODD_PARTS = (1, 7, 15)
"""Nodes of a grid are 2^k times an odd number up to this, from the coarse grid to the fine one."""

FASTER = (1.3, 1.1, 1.05)
"""How many times as fast as at the counts found beside it a GPU of each grid may be."""

ROOMIER = 1.4
"""How many times as fast a GPU may be at a larger count than at one where memory is so short that it recomputes."""

MOST_STEPS = 12
"""Counts that are tried on the way from the guess to where a target binds."""

BETTER = 1.15
"""How many times as fast the best plan of the large space may be as that of the small one."""

MOST_AGAIN = 4
"""Counts at which the large space is tried."""

SHOWN = 3
"""Rows of one machine."""


def grid(most: int, node: int, odd: int) -> list[int]:
    """GPUs of a machine of `most` in nodes of `node`: halves of a node, nodes in numbers of odd part up to `odd`, and all."""
    parts = [node // 2**k for k in range(1, node.bit_length()) if node % 2**k == 0]
    nodes = [n for n in _numbers(most // node, odd)]
    return sorted({count for count in (*parts, *(node * n for n in nodes), most) if count <= most})


def _numbers(most: int, odd: int) -> Iterator[int]:
    for part in range(1, odd + 1, 2):
        while part <= most:
            yield part
            part *= 2


@dataclass
class CountSearch:
    """The counts of one machine: `most` GPUs in nodes of `node`. `evaluate` gives the alternative of a count, with
    the best plan of a small space or (true) of a large one, or raises."""

    wish: Wish
    most: int
    node: int
    evaluate: Callable[[int, bool], Alternative]
    found: dict[int, Alternative] = field(default_factory=dict)
    errors: dict[int, WindtunnelError] = field(default_factory=dict)

    def run(self, guess: float) -> list[Alternative]:
        """The rows to show, found from a first count near `guess`."""
        if not self.wish.work_is_fixed:
            return self.run_beside([factor * guess for factor in (0.5, 1.0, 2.0)])
        coarse = grid(self.most, self.node, ODD_PARTS[1])
        count = min(coarse, key=lambda one: abs(one - guess))
        self._walk(count, coarse)
        if not self.good():
            self._scan()
        if self.good():
            self._push(coarse)
        return self._choose_rows()

    def run_stated(self, counts: Sequence[int]) -> list[Alternative]:
        """The rows of stated counts, each of them."""
        for count in counts:
            self._try(count)
        if not self.good():
            self._look_again()
        return [self.found[count] for count in counts if count in self.found]

    def run_beside(self, wanted: Sequence[float]) -> list[Alternative]:
        """The rows of the counts nearest to the `wanted` ones; others where none of these meets the targets."""
        coarse = grid(self.most, self.node, 3)
        for one in wanted:
            self._try(min(coarse, key=lambda count: abs(count - one)))
        if not self.good():
            self._scan()
        return self._choose_rows()

    def good(self) -> list[Alternative]:
        """Alternatives that meet all targets."""
        return [one for one in self.found.values() if one.good]

    def _try(self, count: int) -> Alternative | None:
        if count not in self.found and count not in self.errors:
            try:
                self.found[count] = self.evaluate(count, False)
            except WindtunnelError as error:
                self.errors[count] = error
        return self.found.get(count)

    def _walk(self, count: int, counts: list[int]) -> None:
        """Follows the targets from a count: more GPUs where nothing fits or the deadline passes, fewer where money runs out."""
        for _ in range(MOST_STEPS):
            one = self._try(count)
            wanted = float(count) * 2 if one is None or not one.prediction.fits else self._nearer(one)
            if wanted is None or wanted == count:
                return
            above = wanted > count
            free = [other for other in counts if (other > count) == above and other != count]
            following = min(free, key=lambda other: abs(other - wanted), default=None)
            if following is None or following in self.found or following in self.errors:
                return
            count = following

    def _nearer(self, one: Alternative) -> float | None:
        """The count at which the target that `one` misses would be met if all GPUs were as fast; None where it meets them, or
        where one of them asks for more GPUs and the other for fewer."""
        gpus = one.machine.cluster.gpus
        late = self.wish.work_is_fixed and self.wish.days is not None and one.days > self.wish.days
        over = self.wish.work_is_fixed and self._divide_by_budget(one) > 1.0
        if late and not over and self.wish.days is not None:
            return gpus * one.days / self.wish.days
        return gpus / 2 if (over and not late) or (one.misses and not self.wish.work_is_fixed) else None

    def _divide_by_budget(self, one: Alternative) -> float:
        """Dollars over the budget."""
        return 0.0 if self.wish.budget is None or one.price.cost is None else one.price.cost / self.wish.budget

    def _scan(self) -> None:
        """Every count that could meet the targets, until one does."""
        for odd, faster in zip(ODD_PARTS, FASTER, strict=True):
            counts = grid(self.most, self.node, odd)
            for count in sorted(counts, key=lambda one: -self._hope(one)):
                if count in self.found or count in self.errors or self._hope(count) * faster < 1.0:
                    continue
                one = self._try(count)
                if one is not None and one.good:
                    return
        self._look_again()

    def _look_again(self) -> None:
        """A larger space of plans at the counts that miss the targets by little, or that lack memory, until one meets them."""
        near = [count for count, one in self.found.items() if self._margin(one, count) * BETTER >= 1.0]
        for count in sorted(near, key=lambda one: -self._margin(self.found[one], one))[:MOST_AGAIN]:
            with suppress(WindtunnelError):
                self.found[count] = self.evaluate(count, True)
            if self.found[count].good:
                return

    def _hope(self, count: int) -> float:
        """By how many times a GPU of `count` may be slower than those found beside it and still meet the targets; above 1: they
        would be met at the same speed."""
        if any(other >= count and not one.prediction.fits for other, one in self.found.items()):
            return 0.0
        fitting = {other: one for other, one in self.found.items() if one.prediction.fits}
        if not fitting:
            return 1.0
        below, above = (
            max((o for o in fitting if o <= count), default=None),
            min((o for o in fitting if o >= count), default=None),
        )
        hopes = [self._margin(fitting[other], count) for other in (below, above) if other is not None]
        if below is not None and fitting[below].prediction.job.plan.recompute != "none":
            hopes[0] *= ROOMIER  # more GPUs have more memory
        return max(hopes)

    def _margin(self, one: Alternative, count: int) -> float:
        """The smallest of limit over need of a run of `count` GPUs as fast as those of `one`."""
        gpus = one.machine.cluster.gpus
        wish = self.wish
        if wish.work_is_fixed:
            late = (wish.days or float("inf")) / (one.days * gpus / count)
            over = self._divide_by_budget(one)
            return min(late, 1.0 / over if over else float("inf"))
        each = one.tokens / (one.days * gpus)  # tokens of a GPU and day
        allowed = wish.days or float("inf")
        if wish.budget is not None and one.price.cost:
            allowed = min(allowed, wish.budget / (one.price.cost / (one.days * gpus)) / count)
        wanted = wish.tokens if wish.tokens is not None else (wish.tokens_per_parameter or 0.0) * one.parameters
        return each * count * allowed / wanted if wanted else float("inf")

    def _push(self, counts: list[int]) -> None:
        """From where the targets are met: fewer GPUs until the deadline binds or they cost more, more until the budget binds."""
        for way in (-1, 1):
            limit = self.wish.days if way < 0 else self.wish.budget
            if limit is None:
                continue
            edge = (min if way < 0 else max)(one.machine.cluster.gpus for one in self.good())
            for _ in range(MOST_STEPS):
                one = self.found[edge]
                room = limit / one.days if way < 0 else None
                beyond = [other for other in counts if (other - edge) * way > 0]
                wanted = edge / room if room is not None else edge * 2.0
                near = min(beyond, key=lambda other: (abs(other - wanted), other), default=None)
                while near is not None and not self._is_good(near):
                    between = [other for other in counts if edge < other < near or near < other < edge]
                    near = between[len(between) // 2] if between else None
                if near is None:
                    break
                edge = near

    def _is_good(self, count: int) -> bool:
        one = self._try(count)
        return one is not None and one.good

    def _choose_rows(self) -> list[Alternative]:
        """The cheapest and the quickest that meet the targets, and what is nearest beside them."""
        ranked = sorted(self.found.values(), key=lambda one: rank(self.wish, one))
        good = [one for one in ranked if one.good]
        quick = sorted(good, key=lambda one: one.days)[:1]
        misses = [one for one in ranked if not one.good]
        chosen = [*good[:1], *quick, *misses[: 1 if good else 2], *good[1:], *misses[2:]]
        return list({one.machine.cluster.gpus: one for one in chosen}.values())[:SHOWN]


def rank(wish: Wish, one: Alternative) -> tuple[float, ...]:
    """What meets the targets first. Then, where the work is fixed, days if only money is limited, else dollars; where it is not,
    the loss. Of what misses, the nearest first."""
    cost = one.price.cost if one.price.cost is not None else float("inf")
    ways = (one.days, cost) if wish.budget is not None and wish.days is None else (cost, one.days)
    first = ways if wish.work_is_fixed else (round(one.loss, 4), cost)
    limits = {"budget": wish.budget, "deadline": wish.days}
    shares = [value / limit for part, value in one.beyond.items() if (limit := limits.get(part))]
    return (float(not one.good), float(not one.prediction.fits), max(shares, default=0.0), *first, one.days)
