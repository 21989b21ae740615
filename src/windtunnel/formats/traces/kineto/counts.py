"""What was counted in a trace, by keys that an independent script finds too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.formats.traces.kineto.trace import ReadTrace
from windtunnel.records.comm_kernels import library_of
from windtunnel.records.intervals import overlap, union
from windtunnel.records.run import EventKind


def counts_of(one: ReadTrace) -> dict[str, Any]:
    """Counts of one trace. Times in microseconds, as the file has them; `gpu` covers kernels, calls and copies."""
    events, table = one.trace.events, one.table
    facts: dict[str, Any] = {
        "rank": one.trace.rank,
        "events": one.around.events,
        "phases": dict(one.columns.phases),
        "categories": _categories(one),
    }
    ends = table.begin + np.maximum(table.duration, 0.0)
    timed = np.isfinite(ends)
    if timed.any():
        facts["span_us"] = _us(float(ends[timed].max() - table.begin[timed].min()))
    if (events.kind <= EventKind.COPY).any():
        facts["gpu"], facts["comm_kernels"] = _gpu(one), _calls(one)
    steps = {f"ProfilerStep#{number}": _us(seconds * 1e6) for number, _, seconds in one.steps}
    if one.rank_from == "the trace":  # a pipeline's timeline
        facts["iterations"] = sorted({number for number, _, _ in one.steps})
        facts["ranges"] = {
            name: int(n) for name, n in zip(events.names, np.bincount(events.name, minlength=len(events.names)), strict=True) if n
        }
    else:
        facts["profiler_steps"], facts["step_dur_us"] = list(steps), steps
    if one.columns.peak:
        facts["peak_allocated_bytes"] = one.columns.peak
    return facts


def total_facts(traces: Sequence[ReadTrace], counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of an import: the counts of a single trace as they are, sums and a list by rank of several."""
    first = traces[0]
    about: dict[str, Any] = {"ranks": len(traces)}
    if (world := max(one.trace.world for one in traces)) > 0:
        about["world_size"] = world
    if first.trace.device:
        about["device"] = first.trace.device
    if len(counts) == 1:
        return about | counts[0]
    about["events"] = sum(one["events"] for one in {id(t.around): c for t, c in zip(traces, counts, strict=True)}.values())
    about["kernels"] = sum(one.get("gpu", {}).get("kernels", 0) for one in counts)
    about["steps"] = len({number for one in traces for number, _, _ in one.steps})
    return about | {"by_rank": list(counts)}


def _categories(one: ReadTrace) -> dict[str, dict[str, float]]:
    """Complete events and their time by category, in the file's own spelling."""
    table = one.table
    count = np.bincount(table.place, minlength=len(table.places))
    time = np.bincount(table.place, np.nan_to_num(table.duration), minlength=len(table.places))
    summed: dict[str, dict[str, float]] = {}
    for number, (category, _, _) in enumerate(table.places):
        entry = summed.setdefault(str(category), {"n": 0, "dur_us": 0.0})
        entry["n"] += int(count[number])
        entry["dur_us"] = _us(entry["dur_us"] + float(time[number]))
    return dict(sorted(summed.items()))


def _gpu(one: ReadTrace) -> dict[str, Any]:
    events = one.trace.events
    begin, end = events.begin * 1e6, (events.begin + events.seconds) * 1e6
    call = events.kind == EventKind.CALL
    kernel = call | (events.kind == EventKind.KERNEL)
    on_gpu = kernel | (events.kind == EventKind.COPY)
    compute, comm = kernel & ~call, call
    return {
        "kernels": int(kernel.sum()),
        "comm_kernels": int(call.sum()),
        "kernel_sum_us": _us(float(events.seconds[kernel].sum() * 1e6)),
        "gpu_span_us": _us(float(end[on_gpu].max() - begin[on_gpu].min())),
        "gpu_busy_union_us": _length(begin[on_gpu], end[on_gpu]),
        "compute_union_us": _length(begin[compute], end[compute]),
        "comm_union_us": _length(begin[comm], end[comm]),
        "comm_and_compute_overlap_us": _us(overlap(union(begin[compute], end[compute]), union(begin[comm], end[comm]))),
        "streams": sorted({str(int(lane)) for lane in np.unique(events.lane[on_gpu])}),
    }


def _calls(one: ReadTrace) -> dict[str, dict[str, Any]]:
    """Communication kernels by name without arguments, with the library that launched them."""
    events = one.trace.events
    named: dict[str, dict[str, Any]] = {}
    for at in np.flatnonzero(events.kind == EventKind.CALL):
        name = events.names[events.name[at]]
        entry = named.setdefault(name.split("(")[0], {"n": 0, "library": library_of(name), "dur_us": 0.0, "bytes": 0.0})
        entry["n"] += 1
        entry["dur_us"] = _us(entry["dur_us"] + float(events.seconds[at]) * 1e6)
        entry["bytes"] = entry["bytes"] + float(events.bytes[at])
    for entry in named.values():
        entry["bytes"] = int(entry["bytes"]) if entry["bytes"] == entry["bytes"] else None
    return named


def _length(begin: Floats, end: Floats) -> float:
    starts, ends = union(begin, end)
    return _us(float(np.sum(ends - starts)))


def _us(microseconds: float) -> float:
    return round(microseconds, 3)
