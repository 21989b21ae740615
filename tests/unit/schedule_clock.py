"""A pipeline on squared paper: each stage runs its actions in order, each as soon as its data is there; transfers are free."""

from __future__ import annotations

from dataclasses import dataclass, field

from windtunnel.spec.shapes import SHAPES
from windtunnel.workload.schedules import SCHEDULES, Action, Order, Pass

Part = tuple[int, int]
"""Part of the model and micro batch."""


@dataclass(frozen=True)
class Times:
    """Seconds of a pass through one virtual stage; a whole backward pass takes both halves, a pair `pair`."""

    forward: float = 1.0
    input_gradient: float = 1.0
    weight_gradient: float = 1.0
    pair: float = 3.0

    def of(self, direction: Pass) -> float:
        whole = self.input_gradient + self.weight_gradient
        return (self.forward, whole, self.input_gradient, self.weight_gradient)[direction]


@dataclass
class Clock:
    """Begin and end of every action of every stage, in schedule order; what each stage computes altogether."""

    begin: list[list[float]]
    end: list[list[float]]
    work: list[float]
    forward: dict[Part, float] = field(default_factory=dict)
    gradient: dict[Part, float] = field(default_factory=dict)

    @property
    def span(self) -> list[float]:
        """Of each stage, seconds from its first begin to its last end."""
        return [end[-1] - begin[0] for begin, end in zip(self.begin, self.end, strict=True)]

    @property
    def makespan(self) -> float:
        return max(end[-1] for end in self.end)


def order_of(name: str, stages: int, virtual: int, micro_batches: int) -> tuple[Order, ...]:
    """The schedule's actions; `virtual` is plan.vpp."""
    return SCHEDULES[name](stages, virtual, micro_batches)


def turns(order: Order) -> list[Order]:
    """Actions one by one, or two where they run at the same time."""
    found: list[Order] = []
    for i, action in enumerate(order):
        if i and order[i - 1].beside_next:
            continue
        found.append(order[i : i + 1 + action.beside_next])
    return found


def run(name: str, stages: int, virtual: int, micro_batches: int, times: Times | None = None) -> Clock:
    """Times of the schedule's actions. Fails where data does not allow the order, a pass runs twice, or all stages wait."""
    times = times or Times()
    places = SHAPES[name].places(stages, virtual)
    last = stages * virtual - 1
    waiting = [turns(order) for order in order_of(name, stages, virtual, micro_batches)]
    clock = Clock([[] for _ in waiting], [[] for _ in waiting], [0.0] * stages)
    weights: set[Part] = set()

    def needs(action: Action, part: int) -> list[float | None]:
        here = (part, action.micro_batch)
        if action.direction is Pass.FORWARD:
            assert here not in clock.forward
            return [clock.forward.get((part - 1, action.micro_batch))] if part else []
        if action.direction is Pass.WEIGHT_GRADIENT:
            assert here not in weights
            return [clock.gradient.get(here)]
        assert here not in clock.gradient
        own = [clock.forward.get(here)]
        return own + ([clock.gradient.get((part + 1, action.micro_batch))] if part < last else [])

    def done(action: Action, part: int, end: float) -> None:
        here = (part, action.micro_batch)
        if action.direction is Pass.FORWARD:
            clock.forward[here] = end
        elif action.direction is not Pass.WEIGHT_GRADIENT:
            clock.gradient[here] = end
        if action.direction in (Pass.BACKWARD, Pass.WEIGHT_GRADIENT):
            assert here not in weights
            weights.add(here)

    moved = True
    while moved:
        moved = False
        for stage, left in enumerate(waiting):
            while left:
                turn = left[0]
                parts = [places[stage][a.chunk] for a in turn]
                ready = [at for a, part in zip(turn, parts, strict=True) for at in needs(a, part)]
                if any(at is None for at in ready):
                    break
                free = clock.end[stage][-1] if clock.end[stage] else 0.0
                start = max([free, *(at for at in ready if at is not None)])
                seconds = times.pair if len(turn) > 1 else times.of(turn[0].direction)
                for action, part in zip(turn, parts, strict=True):
                    done(action, part, start + seconds)
                    clock.begin[stage].append(start)
                    clock.end[stage].append(start + seconds)
                clock.work[stage] += seconds
                left.pop(0)
                moved = True
    assert not any(waiting), f"{name} deadlocks"
    assert len(clock.forward) == len(clock.gradient) == len(weights) == (last + 1) * micro_batches
    return clock


def held(order: Order, gone: Pass) -> int:
    """Most micro batches between their forward pass and their pass `gone` (a whole backward pass is every half of it)."""
    level = peak = 0
    for action in order:
        level += (action.direction is Pass.FORWARD) - (action.direction in (gone, Pass.BACKWARD))
        peak = max(peak, level)
    return peak
