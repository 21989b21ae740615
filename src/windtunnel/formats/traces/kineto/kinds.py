"""Categories of trace events, in the spellings of every version, and what they become."""

from __future__ import annotations

import re

from windtunnel.records.comm_kernels import library_of
from windtunnel.records.run import EventKind

CATEGORIES: dict[str, EventKind] = {  # in lower case; older spellings are those of PyTorch 1.8's profiler
    "kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "gpu_memcpy": EventKind.COPY,
    "gpu_memset": EventKind.COPY,
    "memcpy": EventKind.COPY,
    "memset": EventKind.COPY,
    "runtime": EventKind.LAUNCH,
    "cuda_runtime": EventKind.LAUNCH,
    "cuda_driver": EventKind.LAUNCH,
    "hip_runtime": EventKind.LAUNCH,
    "xpu_runtime": EventKind.LAUNCH,
    "xpu_driver": EventKind.LAUNCH,
    "mtia_runtime": EventKind.LAUNCH,
    "privateuse1_runtime": EventKind.LAUNCH,
    "privateuse1_driver": EventKind.LAUNCH,
    "glow_runtime": EventKind.LAUNCH,
    "cuda_sync": EventKind.SYNC,
    "cpu_op": EventKind.OPERATOR,
    "operator": EventKind.OPERATOR,
    "user_annotation": EventKind.ANNOTATION,
    "profilerstep": EventKind.ANNOTATION,
    "python_function": EventKind.PYTHON,
    "python": EventKind.PYTHON,
}

LEFT_OUT = frozenset({"gpu_user_annotation", "trace", "overhead", "cpu_instant_event", "fwdbwd", "ac2g", "async"})
"""Categories that repeat others on the device's rows, or belong to the profiler itself."""

LEGACY_PROCESSES = {"CPU functions": EventKind.OPERATOR, "CUDA functions": EventKind.KERNEL}
"""Processes by which `torch.autograd.profiler` tells host from device; its events have no category."""

_WAITS = re.compile(r"Synchronize")
_STEP = re.compile(r"ProfilerStep\s*#\s*(\d{1,18})")


def kind_of(category: object, process: object, name: str) -> EventKind | None:
    """The kind of a complete event; None for one that is left out. What has no known category is an annotation."""
    word = category.lower() if isinstance(category, str) else ""
    if word in LEFT_OUT:
        return None
    kind = CATEGORIES.get(word)
    if kind is None:
        kind = LEGACY_PROCESSES.get(process) if isinstance(process, str) else None
    if kind is None:
        return EventKind.ANNOTATION
    if kind is EventKind.LAUNCH and _WAITS.search(name):
        return EventKind.SYNC
    if kind is EventKind.KERNEL and library_of(name):
        return EventKind.CALL
    return kind


def step_of(name: str) -> int | None:
    """The number of a profiler step; None for another annotation."""
    match = _STEP.match(name)
    return int(match[1]) if match else None
