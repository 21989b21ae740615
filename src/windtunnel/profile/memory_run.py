"""One training step of a module with its memory recorded."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from windtunnel.base.dataclasses import dataclass
from windtunnel.profile.device import Device
from windtunnel.profile.layer_timing import Run
from windtunnel.profile.memory import Allocation, MemoryTimeline, of_snapshot, timeline


@dataclass(frozen=True)
class Memory:
    """B by phase: peak allocated and (CUDA) reserved; bytes that forward saves for backward; and the curve over time."""

    peak: dict[str, float]
    reserved: dict[str, float]
    saved: float
    timeline: MemoryTimeline


class Storages(TorchDispatchMode):
    """Tracks every storage that operators allocate while it is active; for devices without an allocator history."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[int, tuple[int, int, float]] = {}
        self.found: list[Allocation] = []
        self.known: set[int] = set()
        self.count = 0

    def ignore(self, tensors: list[Tensor]) -> None:
        """Tensors that already exist."""
        self.known.update(t.untyped_storage()._cdata for t in tensors)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                self._see(tensor)
        return out

    def _see(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self.known:
            return
        self.known.add(storage._cdata)
        self.count += 1
        self.begun[self.count] = (storage.data_ptr(), storage.nbytes(), time.time())
        weakref.finalize(storage, self._note_freed, self.count, storage._cdata)

    def _note_freed(self, number: int, key: int) -> None:
        self.known.discard(key)
        if number in self.begun:
            self.found.append(Allocation(*self.begun.pop(number), time.time()))

    def blocks(self) -> list[Allocation]:
        """All that was seen so far."""
        return self.found + [Allocation(*begun, None) for begun in self.begun.values()]


def memory_of(run: Run, device: Device) -> Memory:
    """Memory of one step in its steady state: the optimizer's state exists, gradients do not."""
    run.clear()
    return _on_cuda(run, device) if device.cuda else _on_cpu(run)


def _on_cpu(run: Run) -> Memory:
    with Storages() as storages:
        storages.ignore([*run.parameters, *run.inputs, *_state(run), *([] if run.gradient is None else [run.gradient])])
        phases, gradients = _step(run, lambda phase: None)
    line = timeline(storages.blocks(), phases, gradients, _start(run))
    zero = phases["forward"][0]
    peak = {phase: line.highest(begin - zero, end - zero) for phase, (begin, end) in phases.items()}
    ended = phases["forward"][1]
    saved = sum(block.bytes for block in storages.blocks() if block.begin < ended and (block.end is None or block.end >= ended))
    run.clear()
    return Memory(peak, {}, float(saved), line)


def _on_cuda(run: Run, device: Device) -> Memory:
    device.synchronize()
    before = torch.cuda.memory_allocated(device.index)
    peak: dict[str, float] = {}
    reserved: dict[str, float] = {}
    allocated: dict[str, float] = {}

    def end_phase(phase: str) -> None:
        device.synchronize()
        peak[phase] = float(torch.cuda.max_memory_allocated(device.index))
        reserved[phase] = float(torch.cuda.max_memory_reserved(device.index))
        allocated[phase] = float(torch.cuda.memory_allocated(device.index))
        torch.cuda.reset_peak_memory_stats(device.index)

    torch.cuda.reset_peak_memory_stats(device.index)
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None, stacks="python")
    try:
        phases, gradients = _step(run, end_phase)
        blocks = of_snapshot(torch.cuda.memory._snapshot()["device_traces"][device.index])
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    line = timeline(blocks, phases, gradients, _start(run))
    run.clear()
    return Memory(peak, reserved, allocated["forward"] - before, line)


def _step(run: Run, ended: Callable[[str], None]) -> tuple[dict[str, tuple[float, float]], set[int]]:
    """One step; begin and end of its phases (seconds since the epoch), and the addresses of the gradients."""
    phases = {}
    begin = time.time()
    out = run.forward()
    ended("forward")
    phases["forward"] = (begin, time.time())
    begin = phases["forward"][1]
    run.backward(out)
    del out
    ended("backward")
    phases["backward"] = (begin, time.time())
    gradients = {p.grad.data_ptr() for p in run.parameters if p.grad is not None}
    if run.update is not None:
        begin = phases["backward"][1]
        run.update.step()
        ended("optimizer")
        phases["optimizer"] = (begin, time.time())
    return phases, gradients


def _state(run: Run) -> list[Tensor]:
    if run.update is None:
        return []
    masters = run.update.stepped if run.update.master else []
    return [*masters, *(v for s in run.update.adam.state.values() for v in s.values() if isinstance(v, Tensor))]


def _start(run: Run) -> dict[str, float]:
    inputs = [*run.inputs, *([] if run.gradient is None else [run.gradient])]
    return {"parameter": _bytes(run.parameters), "optimizer": _bytes(_state(run)), "input": _bytes(inputs)}


def _bytes(tensors: list[Tensor]) -> float:
    return float(sum(t.untyped_storage().nbytes() for t in tensors))
