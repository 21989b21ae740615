"""Kernels and the operator and module that launched each, from PyTorch's profiler (Kineto).

The correlation number of a kernel gives the host call that launched it, that call the operator around it, and the operator the
innermost module whose forward pass was running. Backward operators have the sequence number of their forward operator, which
gives the module. On a CPU an operator counts as a kernel, with its time excluding nested operators.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.profile.device import Device
from windtunnel.profile.trace_events import Event, Nest, events_of, graph_of, is_operator

MODULE = "windtunnel module "
"""Mark around a module's forward pass, followed by its path."""

WINDOW = "windtunnel profiled"
"""Mark around what is profiled."""

GRAPH_LAUNCHES = ("cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch")
BACKWARD = "autograd::engine::evaluate_function"
CALLS = ("cuda_runtime", "cuda_driver")
NO_LAUNCH, FROM_GRAPH = "(no launch seen)", "(cuda graph)"


@dataclass(frozen=True)
class Slice:
    """One kernel (on a CPU: one operator's own time). `begin` s from the start of the window; `gap`: device idle before it, s.

    `module`: path from the root module, empty outside of any; `op`: operator that launched it; `graph`: compiled region it is part
    of, empty in eager mode; `shapes`, `dtypes`: of the operator's inputs; `call`: when the operator began, s, equal for all kernels
    of one call.
    """

    module: str
    phase: str
    op: str
    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    begin: float
    seconds: float
    gap: float
    graph: str = ""
    call: float = -1.0


@dataclass(frozen=True)
class Trace:
    """Slices in the order of time over a window of `seconds`. Kernels + gaps = window, up to kernels that overlap."""

    slices: tuple[Slice, ...]
    seconds: float

    @property
    def kernels(self) -> float:
        """s in kernels."""
        return sum(one.seconds for one in self.slices)

    @property
    def gaps(self) -> float:
        """s between kernels, from the first one's begin to the last one's end."""
        return sum(one.gap for one in self.slices[1:])

    def scale(self, share: float) -> Trace:
        """All times scaled by `share`: the profiler's clock also runs while other programs use the CPU."""
        if share == 1.0:
            return self
        slices = (replace(one, begin=share * one.begin, seconds=share * one.seconds, gap=share * one.gap) for one in self.slices)
        return Trace(tuple(slices), share * self.seconds)

    def scaled_by_phase(self, share: Mapping[str, float]) -> Trace:
        """The slices of each phase scaled by its share: seconds and gaps. When they begin stays; a phase without a share too."""
        scale = [share.get(one.phase, 1.0) for one in self.slices]
        slices = (replace(one, seconds=by * one.seconds, gap=by * one.gap) for by, one in zip(scale, self.slices, strict=True))
        return replace(self, slices=tuple(slices))

    def by_module(self) -> dict[tuple[str, str], float]:
        """s by (module, phase), each kernel counted once, with the innermost module."""
        total: dict[tuple[str, str], float] = defaultdict(float)
        for one in self.slices:
            total[one.module, one.phase] += one.seconds
        return dict(total)


def profile_call(run: Callable[[], object], device: Device, module: Any = None) -> Trace:
    """Runs `run` once to warm up and once under the profiler; `module` is the root whose sub-modules are named.

    The first profiler of a process takes a second or more to load.
    """
    torch = device.torch
    run()
    device.synchronize()
    profiler = torch.profiler
    activities = [profiler.ProfilerActivity.CPU, *([profiler.ProfilerActivity.CUDA] if device.cuda else [])]
    recorded = profiler.profile(activities=activities, record_shapes=True)
    with mark_modules(torch, module), recorded, profiler.record_function(WINDOW):
        begin, wall = device.mark(), time.perf_counter()
        run()
        device.synchronize()
        wall = time.perf_counter() - wall
        share = 1.0 if device.cuda else min(1.0, device.seconds_between(begin, device.mark()) / wall)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        return attribute(json.loads(path.read_text(encoding="utf-8")), device.cuda).scale(share)


@contextmanager
def mark_modules(torch: Any, module: Any) -> Iterator[None]:
    """While entered, every sub-module of `module` marks its forward pass. Modules inside a compiled region mark nothing."""
    handles, running = [], []
    for name, part in module.named_modules() if module is not None else ():

        def enter(_: Any, given: Any, name: str = name) -> None:
            mark = torch.profiler.record_function(MODULE + name)
            mark.__enter__()
            running.append(mark)

        def leave(*_: Any) -> None:
            running.pop().__exit__(None, None, None)

        handles += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def attribute(chrome: Mapping[str, Any], device: bool) -> Trace:
    """A trace from the profiler's JSON (`export_chrome_trace`): kernels of the device, or the CPU's operators.

    Only events in the window count, if the JSON has one.
    """
    events = events_of(chrome)
    nest = Nest(events)
    window = next((e for e in events if e.name == WINDOW and e.category == "user_annotation"), None)
    begin, end = (
        (window.begin, window.end)
        if window
        else (min((e.begin for e in events), default=0.0), max((e.end for e in events), default=0.0))
    )
    forward = _forward_modules(events, nest)
    slices = _device_slices(events, nest, forward, begin) if device else _host_slices(events, nest, forward, begin, end)
    return Trace(tuple(slices), end - begin)


def _forward_modules(events: Sequence[Event], nest: Nest) -> dict[int, str]:
    """Sequence number of forward operators -> module path. The number is that of the next node of the backward graph, so of several
    operators with one number the last has made the node."""
    modules: dict[int, str] = {}
    for event in events:
        if is_operator(event) and event.sequence is not None and not event.forward_thread:
            modules[event.sequence] = _module(nest.events_around(event))
    return modules


def _module(chain: Sequence[Event]) -> str:
    """Path of the innermost module whose forward pass is in `chain`; empty outside of all."""
    return next((around.name.removeprefix(MODULE) for around in chain if around.name.startswith(MODULE)), "")


def _describe_launch(nest: Nest, event: Event | None, forward: Mapping[int, str]) -> tuple[str, str, str, Event | None, str]:
    """(module, phase, operator's name, operator, compiled region) of a launch inside `event`."""
    if event is None:
        return "", "forward", NO_LAUNCH, None, ""
    chain = [event, *nest.events_around(event)]
    op = next((e for e in chain if is_operator(e)), None)
    graph = next((graph_name for e in chain if (graph_name := graph_of(e))), "")
    name = op.name if op else event.name
    if any(e.name.startswith("Optimizer.step") for e in chain):
        return "", "optimizer", name, op, graph
    for around in chain:
        if around.forward_thread or around.name.startswith(BACKWARD):
            number = -1 if around.sequence is None else around.sequence
            return forward.get(number, ""), "backward", name, op, graph
    return _module(chain), "forward", name, op, graph


def _device_slices(events: Sequence[Event], nest: Nest, forward: Mapping[int, str], zero: float) -> Iterator[Slice]:
    """Kernels, copies and fills. The gap before one is the time since all before it had ended: on one stream, its wait."""
    launches: dict[int | None, Event] = {e.correlation: e for e in events if e.category in CALLS and e.correlation is not None}
    reached = zero
    for event in events:
        if event.category not in ("kernel", "gpu_memcpy", "gpu_memset") or event.begin < zero:
            continue
        call = launches.get(event.correlation)
        module, phase, name, op, graph = _describe_launch(nest, call, forward)
        if call is not None and call.name.startswith(GRAPH_LAUNCHES):
            name, op = FROM_GRAPH, None
        yield Slice(
            module,
            phase,
            name,
            event.name,
            op.shapes if op else (),
            op.dtypes if op else (),
            event.begin - zero,
            event.end - event.begin,
            max(0.0, event.begin - reached),
            graph,
            op.begin if op else event.begin,
        )
        reached = max(reached, event.end)


def _host_slices(events: Sequence[Event], nest: Nest, forward: Mapping[int, str], begin: float, end: float) -> Iterator[Slice]:
    """Operators with their own time. The gap before an outermost one is the time since the last outermost one had ended."""
    reached = begin
    for event in events:
        if not is_operator(event) or not begin <= event.begin <= end:
            continue
        module, phase, name, _, graph = _describe_launch(nest, event, forward)
        gap = 0.0
        if not any(is_operator(around) for around in nest.events_around(event)):
            gap, reached = max(0.0, event.begin - reached), max(reached, event.end)
        yield Slice(
            module,
            phase,
            name,
            name,
            event.shapes,
            event.dtypes,
            event.begin - begin,
            nest.own_seconds(event),
            gap,
            graph,
            event.begin,
        )
