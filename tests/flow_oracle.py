"""Weighted max-min fair fluids by the textbook, in rational numbers: what the flow engine must agree with."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

Row = tuple[tuple[int, Fraction], ...]
"""(link, demand) pairs; a link may occur twice."""


@dataclass(frozen=True)
class Fluid:
    """One variable; `bound` None for none."""

    row: Row
    size: Fraction
    begin: Fraction = Fraction(0)
    weight: Fraction = Fraction(1)
    bound: Fraction | None = None
    latency: Fraction = Fraction(0)
    delay: Fraction = Fraction(0)
    deps: tuple[int, ...] = ()


@dataclass
class Result:
    start: dict[int, Fraction] = field(default_factory=dict)
    delivered: dict[int, Fraction] = field(default_factory=dict)
    bytes: dict[int, Fraction] = field(default_factory=dict)
    busy: dict[int, Fraction] = field(default_factory=dict)


def levels(fluids: dict[int, Fluid], capacity: list[Fraction]) -> dict[int, Fraction]:
    """Progressive filling: raise the rate / weight of all together, stop those on a link that is full and those at their bound."""
    level: dict[int, Fraction] = {}
    while len(level) < len(fluids):
        load = [Fraction(0)] * len(capacity)
        rising = [Fraction(0)] * len(capacity)
        for name, fluid in fluids.items():
            for link, demand in fluid.row:
                if name in level:
                    load[link] += demand * fluid.weight * level[name]
                else:
                    rising[link] += demand * fluid.weight
        fills = {link: (capacity[link] - load[link]) / rising[link] for link in range(len(capacity)) if rising[link]}
        free = {name: fluid for name, fluid in fluids.items() if name not in level}
        bounds = [fluid.bound / fluid.weight for fluid in free.values() if fluid.bound is not None]
        top = min([*fills.values(), *bounds])
        for name, fluid in free.items():
            at_bound = fluid.bound is not None and fluid.bound / fluid.weight == top
            if at_bound or any(fills[link] == top for link, _ in fluid.row):
                level[name] = top
    return level


def simulate(
    fluids: list[Fluid], capacity: list[Fraction], changes: tuple[tuple[Fraction, int, Fraction], ...] = ()
) -> Result | None:
    """Every event one by one; None if something can never finish."""
    out = Result(bytes=dict.fromkeys(range(len(capacity)), Fraction(0)), busy=dict.fromkeys(range(len(capacity)), Fraction(0)))
    capacity = list(capacity)
    left: dict[int, Fraction] = {}
    now, todo = Fraction(0), list(changes)
    while len(out.delivered) < len(fluids):
        while todo and todo[0][0] <= now:
            _, link, value = todo.pop(0)
            capacity[link] = value
        progress = True
        while progress:
            progress = False
            for name, fluid in enumerate(fluids):
                if name in out.start or not all(d in out.delivered for d in fluid.deps):
                    continue
                if _start(fluid, out) <= now:
                    out.start[name], progress = now, True
                    if fluid.size == 0 or (not fluid.row and fluid.bound is None):
                        out.delivered[name] = now + fluid.latency
                    else:
                        left[name] = fluid.size
        level = levels({name: fluids[name] for name in left}, capacity)
        ends = [now + left[n] / (level[n] * fluids[n].weight) for n in left if level[n] > 0]
        begins = [
            _start(f, out) for n, f in enumerate(fluids) if n not in out.start and all(d in out.delivered for d in f.deps)
        ]
        coming = [*ends, *begins, *([todo[0][0]] if todo else [])]
        if len(out.delivered) == len(fluids):
            break
        if not coming:
            return None
        after = min(coming)
        for name in list(left):
            rate = level[name] * fluids[name].weight
            for link, demand in fluids[name].row:
                out.bytes[link] += demand * rate * (after - now)
            left[name] -= rate * (after - now)
        for link in range(len(capacity)):
            if any(level[n] > 0 and link in dict(fluids[n].row) for n in level):
                out.busy[link] += after - now
        now = after
        for name in [n for n in left if left[n] == 0]:
            del left[name]
            out.delivered[name] = now + fluids[name].latency
    return out


def _start(fluid: Fluid, out: Result) -> Fraction:
    return max([fluid.begin, *(out.delivered[d] + fluid.delay for d in fluid.deps)])
