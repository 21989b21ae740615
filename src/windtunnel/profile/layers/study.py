"""All measurements of one case: stacks of layers, their sub-modules and kernels, embedding and head, a full step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from windtunnel.profile.case import Case
from windtunnel.profile.device import Device
from windtunnel.profile.layer_timing import Tick, time_in_turn, time_phases
from windtunnel.profile.layers.build import LayerBench
from windtunnel.profile.layers.parts import Parts, time_parts
from windtunnel.profile.layers.trace import Traced, trace_passes
from windtunnel.profile.memory_run import Memory, memory_of
from windtunnel.profile.modules.family import ModuleFamily
from windtunnel.profile.power import Meter
from windtunnel.profile.timing import KernelTiming

Made = TypeVar("Made")

DEEP = 4
"""Most layers of the profiled stack: more only make the trace longer."""


@dataclass(frozen=True)
class Effort:
    """Settings: repetitions, numbers of layers in stacks, levels of rows, tolerance of the closure check."""

    warmup: int = 10
    repeats: int = 20
    layers: tuple[int, ...] = (1, 2, 4, 8)
    levels: tuple[str, ...] = ("layer", "submodule", "step")
    tolerance: float = 0.05
    seed: int = 0


class Timed(NamedTuple):
    """A module's class, its times by phase, and its memory (None where only time was asked for)."""

    name: str
    times: dict[str, KernelTiming]
    memory: Memory | None


@dataclass(frozen=True)
class StudyResult:
    """Results; None for parts that did not fit into memory or are not visible in this mode. `deep`: layers of the profiled stack;
    `step`: the full step, alternating with each of its parts (stack, embedding, norm, head)."""

    stacks: dict[int, Timed | None]
    deep: int
    parts: Parts | None
    traced: Traced | None
    step: dict[str, Timed]
    cuda: bool

    @property
    def fitting(self) -> dict[int, Timed]:
        return {layers: timed for layers, timed in self.stacks.items() if timed is not None}


class Study:
    """One case, one implementation, one mode on one device."""

    def __init__(
        self, case: Case, family: ModuleFamily, mode: str, device: Device, meter: Meter, effort: Effort, tick: Tick
    ) -> None:
        self.case, self.mode, self.family, self.device = case, mode, family, device
        self.meter, self.effort, self.tick = meter, effort, tick
        self.bench = LayerBench(case, family, mode, device, effort.seed)

    def measure(self) -> StudyResult:
        """Measures everything that fits. Raises `Stopped` through `tick`; then nothing of this case is kept."""
        stacks = {n: self._fitting(partial(self._stack, n), self.bench.needed_bytes(n)) for n in sorted(set(self.effort.layers))}
        fitting = [n for n, timed in stacks.items() if timed is not None]
        if not fitting:
            return StudyResult(stacks, 0, None, None, {}, self.device.cuda)
        deep = max((n for n in fitting if n <= DEEP), default=fitting[0])
        parts = self._fitting(partial(self._parts, deep)) if self._sees_inside() else None
        traces = self._fitting(partial(self._traces, deep)) if self._sees_kernels() else None
        step = self._fitting(partial(self._step, deep)) or {}
        return StudyResult(stacks, deep, parts, traces, step, self.device.cuda)

    def _stack(self, layers: int) -> Timed:
        run, placed = self.bench.stack(layers)
        times = time_phases(run, self.device, self.meter, self.effort.warmup, self.effort.repeats, self.tick)
        return Timed(self.family.name(placed.stack.layers[0]), times, memory_of(run, self.device))

    def _step(self, layers: int) -> dict[str, Timed]:
        runs, names = self.bench.step(layers)
        times = time_in_turn(runs, self.device, self.effort.warmup, self.effort.repeats, self.tick)
        return {op: Timed(names.get(op, "step"), times[op], memory_of(run, self.device)) for op, run in runs.items()}

    def _parts(self, layers: int) -> Parts:
        run, placed = self.bench.stack(layers)
        return time_parts(run, placed, self.family, self.device, self.effort.warmup, self.effort.repeats, self.tick)

    def _traces(self, layers: int) -> Traced:
        run, placed = self.bench.stack(layers)
        ops = {id(part): op for layer in placed.stack.layers for op, same in self.family.parts(layer).items() for part in same}
        part_of = {path: ops[id(module)] for path, module in placed.named_modules() if id(module) in ops}
        return trace_passes(run, placed, part_of, self.device, max(3, self.effort.repeats // 2), self.tick)

    def _sees_inside(self) -> bool:
        """Hooks break a compiled graph, a replayed one calls none, and a recomputed layer calls them twice."""
        return self.mode == "eager" and self.case.recompute in ("none", "selective")

    def _sees_kernels(self) -> bool:
        """On a CPU the profiler names operators, of which compiled code has none; replayed graphs are not traced by node."""
        return self.mode == "eager" or (self.mode == "compile" and self.device.cuda)

    def _fitting(self, make: Callable[[], Made], needed: float = 0.0) -> Made | None:
        """Return what `make` returns, or None, with the memory released, if it does not fit."""
        if not self.device.cuda and needed > self.device.free() > 0:
            return None  # with memory overcommit the operating system would kill the process
        self.bench.begin()
        try:
            return make()
        except Exception as error:
            if not self.device.out_of_memory(error):
                raise
        finally:
            if self.device.cuda:  # reference cycles keep graphs and compiled code alive; a collection is cheap here
                gc.collect()
            self.device.forget()
        return None
