"""All measurements of one case: stacks of layers, their sub-modules and kernels, embedding and head, a full step.

Stacks, single modules and small models with random weights on a device, ready to run a step.

Times of sub-modules inside a stack of layers, by hooks.

Times of the modules inside a layer, by hooks that record marks without waiting.

A module's input is passed through a view, whose gradient hook fires when the module's own backward has produced it: a plain
`register_full_backward_hook` misses tensors passed by keyword, and a gradient hook on the input itself would also wait for the
residual path.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.profile.case import Case
from windtunnel.profile.closure import Agreement, Way, agreement
from windtunnel.profile.device import Device
from windtunnel.profile.layer_timing import Clock, Run, Tick, time_in_turn, time_phases
from windtunnel.profile.layers.trace import Traced, trace_passes
from windtunnel.profile.memory_run import Memory, memory_of
from windtunnel.profile.modules.compare import random_tensor
from windtunnel.profile.modules.family import ModuleFamily, Own
from windtunnel.profile.modules.layer import TORCH, Placed, Small, Stack, TimedUpdate, norm
from windtunnel.profile.power import Meter, PowerReading
from windtunnel.profile.timing import KernelTiming, timing_of


@dataclass(frozen=True)
class Parts:
    """One execution of each sub-module by (op, phase); class names by op; and a pass over the stack by phase: its parts and what
    lies between them, beside plain passes in turn."""

    timings: dict[tuple[str, str], KernelTiming]
    names: dict[str, str]
    ways: dict[str, Way]


def time_parts(run: Run, placed: Placed, family: ModuleFamily, device: Device, warmup: int, repeats: int, tick: Tick) -> Parts:
    """Times of every sub-module of `placed`, over the mean of its equals in a repetition. Nothing waits inside a repetition."""
    named: dict[str, list[nn.Module]] = defaultdict(list)
    for layer in placed.stack.layers:
        for op, modules in family.parts(layer).items():
            named[op] += modules
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    hosts: dict[tuple[str, str], list[float]] = defaultdict(list)
    sums: dict[str, list[float]] = {"forward": [], "backward": []}
    plain = Clock(replace(run, update=None), device)
    for number in range(warmup + repeats):
        tick()
        plain.repeat(number >= warmup)
        watched = Clock(plain.run, device)
        with Hooks(named, device) as hooks:
            watched.repeat(keep=True)
        inside = hooks.by_name()
        if number >= warmup:
            for (op, phase), (seconds, host) in inside.items():
                times[op, phase].append(seconds / len(named[op]))
                hosts[op, phase].append(host / len(named[op]))
            for phase, totals in sums.items():
                within = sum(seconds for (_, passed), (seconds, _) in inside.items() if passed == phase)
                totals.append(max(watched.times[phase][0], within))
    run.clear()
    timings = {
        key: timing_of(totals, median(hosts[key]) if device.cuda else None, 1, None, PowerReading())
        for key, totals in times.items()
    }
    return Parts(
        timings,
        {op: type(modules[0]).__name__ for op, modules in named.items()},
        {phase: Way(median(totals), median(plain.times[phase])) for phase, totals in sums.items()},
    )


Point = tuple[Any, float]
"""A mark on the device, and the host's clock when it was enqueued."""


class Hooks:
    """While entered, every module of `named` adds an interval a pass; `by_name` adds them up after the device is done."""

    def __init__(self, named: Mapping[str, list[nn.Module]], device: Device) -> None:
        self.named, self.device = named, device
        self.intervals: list[tuple[str, str, Point, Point]] = []
        self.handles: list[Any] = []

    def __enter__(self) -> Hooks:
        for name, modules in self.named.items():
            for module in modules:
                self._watch(name, module)
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()

    def by_name(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Device and host seconds by (module name, phase), summed over modules of that name; clears the records."""
        total: dict[tuple[str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        for name, phase, (begin, clock), (end, later) in self.intervals:
            device, host = total[name, phase]
            total[name, phase] = device + self.device.seconds_between(begin, end), host + later - clock
        self.intervals.clear()
        return dict(total)

    def _point(self) -> Point:
        return self.device.mark(), time.perf_counter()

    def _watch(self, name: str, module: nn.Module) -> None:
        began: list[Point] = []
        back: list[Point] = []

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            args, kwargs, own = _view_first(args, kwargs)
            if own is not None:
                own.register_hook(lambda grad: self.intervals.append((name, "backward", back.pop(), self._point())))
            began.append(self._point())
            return args, kwargs

        def leave(_: nn.Module, args: Any, out: Any) -> None:
            self.intervals.append((name, "forward", began.pop(), self._point()))
            first = out[0] if isinstance(out, tuple) else out
            if first.requires_grad:
                first.register_hook(lambda grad: back.append(self._point()))

        self.handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        self.handles.append(module.register_forward_hook(leave))


def _view_first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Tensor | None]:
    """The arguments with a view in place of the first tensor that needs a gradient, and that view."""
    for i, value in enumerate(args):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            own = value.view_as(value)
            return (*args[:i], own, *args[i + 1 :]), kwargs, own
    for key, value in kwargs.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            own = value.view_as(value)
            return args, {**kwargs, key: own}, own
    return args, kwargs, None


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


def compare_modes(case: Case, family: ModuleFamily, mode: str, device: Device, seed: int) -> Agreement:
    """Output and input gradient of one layer in `mode` beside those in eager mode; nothing where it does not fit or cannot run."""
    results = []
    try:
        for way in (mode, "eager"):
            bench = LayerBench(case, family, way, device, seed)
            bench.begin()
            run, _ = bench.stack(1)
            out = run.forward()
            run.backward(out)
            results.append((out.detach().clone(), [x.grad.clone() for x in run.inputs if x.grad is not None]))
    except RuntimeError:  # the measurement itself says why
        return Agreement()
    finally:
        device.forget()
    return agreement("eager", results[0], results[1], case.dtype)


class LayerBench:
    """Builds the modules to measure, for one case, implementation and mode on one device."""

    def __init__(self, case: Case, family: ModuleFamily, mode: str, device: Device, seed: int) -> None:
        self.case, self.family, self.mode, self.device, self.seed = case, family, mode, device, seed
        self.dtype = TORCH[case.dtype]

    def stack(self, layers: int) -> tuple[Run, Placed]:
        """`layers` in a row on a random input that needs a gradient, with their update."""
        with self._new_tensors():
            placed = self._place_stack(layers)
        return self._run(placed, (self._hidden_state(),), self._hidden_state().detach()), placed

    def whole_step(self) -> Run:
        """A step of the whole model, each layer of its kind. SpecError for a kind of layer that has no module."""
        own = Own()
        with self._new_tensors():
            stack = Placed(Stack(own.layers(self.case), self.case.recompute), self.case, self.device.place)
            small = Small(own.embedding(self.case), stack, norm(self.case), own.head(self.case))
        return self._run(small, (self._tokens(0), self._tokens(1)), None)

    def step(self, layers: int) -> tuple[dict[str, Run], dict[str, str]]:
        """A small model of embedding, `layers`, final norm and head with loss: the whole `step` with its update, and each of
        `stack`, `embedding`, `norm` and `head` alone, without. Also their classes' names."""
        with self._new_tensors():
            parts = (self.family.embedding(self.case), self._place_stack(layers), norm(self.case), self.family.head(self.case))
            small = Small(*parts)
        tokens, labels, gradient = self._tokens(0), self._tokens(1), self._hidden_state().detach()
        modules = dict(zip(("embedding", "stack", "norm", "head"), parts, strict=True))
        arguments = {
            "embedding": (tokens,),
            "stack": (self._hidden_state(),),
            "norm": (self._hidden_state(),),
            "head": (self._hidden_state(), labels),
        }
        runs = {"step": self._run(small, (tokens, labels), None)}
        for name, module in modules.items():
            runs[name] = self._run(module, arguments[name], None if name == "head" else gradient, updated=False)
        return runs, {name: type(module).__name__ for name, module in modules.items()}

    def begin(self) -> None:
        """Reset torch.compile, so that a stack does not count as a recompilation of the previous one."""
        if self.mode == "compile":
            torch._dynamo.reset()

    def needed_bytes(self, layers: int) -> float:
        """Least memory of the weights, gradients and optimizer state of `layers`, B."""
        with torch.device("meta"):
            parameters = sum(p.numel() for p in self.family.layer(self.case).parameters())
        width = 4 if self.case.dtype == "fp32" else 2
        masters = 4 if self.case.master_weights and width == 2 else 0
        return float(layers * parameters * (2 * width + masters + 2 * (4 if masters else width)))

    # -- parts ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _new_tensors(self) -> Iterator[None]:
        """New tensors lie on the device, in the case's format, with weights that only the seed decides."""
        before = torch.get_default_dtype()
        torch.manual_seed(self.seed)
        torch.set_default_dtype(self.dtype)
        try:
            with torch.device(self.device.place):
                yield
        finally:
            torch.set_default_dtype(before)

    def _place_stack(self, layers: int) -> Placed:
        stack = [self.family.layer(self.case) for _ in range(layers)]
        return Placed(Stack(stack, self.case.recompute), self.case, self.device.place)

    def _hidden_state(self) -> Tensor:
        case = self.case
        shape = (case.micro_batch, case.seq, case.model.hidden)
        return random_tensor(shape, self.device.place, self.dtype, self.seed).requires_grad_()

    def _tokens(self, offset: int) -> Tensor:
        generator = torch.Generator(self.device.place).manual_seed(self.seed + offset)
        shape = (self.case.micro_batch, self.case.seq)
        return torch.randint(self.case.vocab, shape, generator=generator, device=self.device.place)

    def _run(self, module: nn.Module, inputs: tuple[Tensor, ...], gradient: Tensor | None, updated: bool = True) -> Run:
        module.train()
        parameters = list(module.parameters())
        call = self._in_mode(module, inputs)
        update = TimedUpdate(parameters, self.case.master_weights) if updated else None
        return Run(lambda: call(*inputs), gradient, parameters, [x for x in inputs if x.requires_grad], update)

    def _in_mode(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Callable[..., Any]:
        if self.mode == "compile":
            compiled: Callable[..., Any] = torch.compile(module, dynamic=False)
            return compiled
        if self.mode == "cuda_graph":
            graphed: Callable[..., Any] = torch.cuda.make_graphed_callables(module, inputs)
            return graphed
        plain: Callable[..., Any] = module
        return plain
