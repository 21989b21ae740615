"""Categories of trace events, in the spellings of every version, and what they become."""

from __future__ import annotations

import re

from windtunnel.base.files import table_beside, words_by_meaning
from windtunnel.records.comm_kernels import library_of
from windtunnel.records.run import EventKind

CATEGORIES = {word: EventKind[kind.upper()] for word, kind in words_by_meaning(table_beside(__file__)).items()}

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
