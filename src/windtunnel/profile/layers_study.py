"""One case measured in every way: layers in series, sub-modules inside them, kernels, the modules at both ends, a whole step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from windtunnel.profile.case import Case
from windtunnel.profile.device import Device
from windtunnel.profile.layers_build import Bench
from windtunnel.profile.layers_parts import Parts, time_parts
from windtunnel.profile.layers_timing import Tick, time_phases
from windtunnel.profile.layers_trace import traces
from windtunnel.profile.memory_run import Memory, memory_of
from windtunnel.profile.modules.family import Family
from windtunnel.profile.power import Meter
from windtunnel.profile.timing import Timing
from windtunnel.profile.trace import Trace

Made = TypeVar("Made")

DEEP = 4
"""Layers of the stack that is looked into, at most: more only make the profiler's trace longer."""


@dataclass(frozen=True)
class Effort:
    """How carefully: repetitions, stacks of how many layers, which levels become rows, what the gate lets through."""

    warmup: int = 10
    repeats: int = 20
    layers: tuple[int, ...] = (1, 2, 4, 8)
    levels: tuple[str, ...] = ("layer", "submodule", "step")
    tolerance: float = 0.05
    seed: int = 0


class Timed(NamedTuple):
    """A module's class, its times by phase, and its memory (None where only time was asked for)."""

    name: str
    times: dict[str, Timing]
    memory: Memory | None


@dataclass(frozen=True)
class Measured:
    """What came out; None where it did not fit into memory or is not seen in this mode. `deep`: layers of the stack
    that was looked into; `part_of`: its module paths -> what they are."""

    stacks: dict[int, Timed | None]
    deep: int
    parts: Parts | None
    traces: list[Trace] | None
    part_of: dict[str, str]
    ends: dict[str, Timed]
    step: Timed | None
    cuda: bool

    @property
    def fitting(self) -> dict[int, Timed]:
        return {layers: made for layers, made in self.stacks.items() if made is not None}


class Study:
    """One case, one implementation, one mode on one device."""

    def __init__(self, case: Case, family: Family, mode: str, device: Device, meter: Meter, effort: Effort, tick: Tick) -> None:
        self.case, self.mode, self.family, self.device = case, mode, family, device
        self.meter, self.effort, self.tick = meter, effort, tick
        self.bench = Bench(case, family, mode, device, effort.seed)
        self.part_of: dict[str, str] = {}

    def measure(self) -> Measured:
        """Everything that fits. Raises `Stopped` through `tick`, and then nothing of this case is kept."""
        stacks = {n: self._fitting(partial(self._stack, n), self.bench.needed(n)) for n in sorted(set(self.effort.layers))}
        fitting = [n for n, made in stacks.items() if made is not None]
        if not fitting:
            return Measured(stacks, 0, None, None, {}, {}, None, self.device.cuda)
        deep = max((n for n in fitting if n <= DEEP), default=fitting[0])
        parts = self._fitting(partial(self._parts, deep)) if self._sees_inside() else None
        taken = self._fitting(partial(self._traces, deep)) if self._sees_kernels() else None
        ends = {op: self._fitting(partial(self._alone, op)) for op in ("embedding", "norm", "head")}
        step = self._fitting(partial(self._step, deep)) if "step" in self.effort.levels else None
        there = {op: made for op, made in ends.items() if made is not None}
        return Measured(stacks, deep, parts, taken, self.part_of, there, step, self.device.cuda)

    def _stack(self, layers: int) -> Timed:
        run, placed = self.bench.stack(layers)
        return Timed(self.family.name(placed.stack.layers[0]), self._times(run), memory_of(run, self.device))

    def _alone(self, op: str) -> Timed:
        run, name = self.bench.alone(op)
        return Timed(name, self._times(run), memory_of(run, self.device))

    def _step(self, layers: int) -> Timed:
        run = self.bench.step(layers)
        return Timed("step", self._times(run), memory_of(run, self.device))

    def _times(self, run: Any) -> dict[str, Timing]:
        return time_phases(run, self.device, self.meter, self.effort.warmup, self.effort.repeats, self.tick)

    def _parts(self, layers: int) -> Parts:
        run, placed = self.bench.stack(layers)
        return time_parts(run, placed, self.family, self.device, self.effort.warmup, self.effort.repeats, self.tick)

    def _traces(self, layers: int) -> list[Trace]:
        run, placed = self.bench.stack(layers)
        ops = {id(part): op for layer in placed.stack.layers for op, same in self.family.parts(layer).items() for part in same}
        self.part_of = {path: ops[id(module)] for path, module in placed.named_modules() if id(module) in ops}
        return traces(run, placed, self.device, max(3, self.effort.repeats // 4), self.tick)

    def _sees_inside(self) -> bool:
        """Hooks break a compiled graph, a replayed one calls none, and a recomputed layer calls them twice."""
        return self.mode == "eager" and self.case.recompute in ("none", "selective")

    def _sees_kernels(self) -> bool:
        """On a CPU the profiler names operators, of which compiled code has none; replayed graphs are not traced by node."""
        return self.mode == "eager" or (self.mode == "compile" and self.device.cuda)

    def _fitting(self, make: Callable[[], Made], needed: float = 0.0) -> Made | None:
        """What `make` returns; None where it does not fit into memory, which is given back."""
        if not self.device.cuda and needed > self.device.free() > 0:
            return None  # an operating system that promises more than it has would end the process
        try:
            return make()
        except Exception as error:
            if not self.device.out_of_memory(error):
                raise
        finally:
            if self.device.cuda:  # graphs and compiled code are held by cycles; a host has the time of a collection to lose
                gc.collect()
            self.device.forget()
        return None
