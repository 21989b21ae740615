"""The fields of a trace event that are read; every other field is skipped by the decoder.

Names as PyTorch's profiler writes them (kineto's output_json.cpp, PyTorch's ParamCommsUtils.hpp). Values stay as they are written:
numbers come as text in old traces, and it is cheaper to turn whole columns.

Categories of trace events, in the spellings of every version, and what they become.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from windtunnel.base.files import table_beside, words_by_meaning
from windtunnel.records.kernel_classes import library_of
from windtunnel.records.run import EventKind


class Args(msgspec.Struct, gc=False):
    """`args` of an event. Raw fields are decoded only where they are needed."""

    correlation: Any = -1
    external: Any = msgspec.field(name="External id", default=None)
    external_old: Any = msgspec.field(name="external id", default=-1)
    record: Any = msgspec.field(name="Record function id", default=-1)
    number: Any = msgspec.field(name="Sequence number", default=-1)  # of autograd
    forward: Any = msgspec.field(name="Fwd thread id", default=-1)
    stream: Any = -1
    device: Any = -1
    bytes: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    dtype: Any = None
    elements_in: Any = msgspec.field(name="In msg nelems", default=None)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_text: Any = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    group_start: Any = msgspec.field(name="Global rank start", default=None)
    group_stride: Any = msgspec.field(name="Global rank stride", default=None)
    sequence: Any = msgspec.field(name="Seq", default=None)
    rank: Any = msgspec.field(name="Rank", default=None)
    source: Any = msgspec.field(name="Src Rank", default=None)
    target: Any = msgspec.field(name="Dst Rank", default=None)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw(b""))
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw(b""))
    sync_stream: Any = msgspec.field(name="wait_on_stream", default=-1)
    sync_record: Any = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=-1)
    name: Any = None  # of a process or a thread
    iteration: Any = None  # MegatronApp
    step: Any = None  # ByteDance's pipeline traces
    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    device_type: Any = msgspec.field(name="Device Type", default=None)


NO_ARGS = Args()


class TraceEvent(msgspec.Struct, gc=False):
    """One element of `traceEvents`."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = msgspec.field(default_factory=lambda: NO_ARGS)


class ValuedArgs(Args, gc=False):
    """With the values of an operator's scalar inputs, which cost time to read in large traces."""

    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw(b""))


class ValuedEvent(TraceEvent, gc=False):
    """An event that is read with the values of its inputs."""

    args: ValuedArgs | None = None


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
