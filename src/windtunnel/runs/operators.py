"""The operators of a profiler's trace by shape: seconds, rates, what bounds them, and what kernel models say of the same shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import UnknownName
from windtunnel.compute import estimate
from windtunnel.compute.row_names import KINDS, PHASES
from windtunnel.formats.traces.xla_work import XlaWork, work_of
from windtunnel.profile.layers.shapes import FORMATS, attention_inputs, class_of, moved_bytes, sizes
from windtunnel.profile.trace import FROM_GRAPH, NO_LAUNCH
from windtunnel.records import kernel_classes
from windtunnel.records.kernel_classes import library_of
from windtunnel.records.run import ON_DEVICE, OperatorCalls, RankTrace, Run
from windtunnel.records.work import with_work
from windtunnel.spec import GPU, load_gpu, load_runtime, match_gpu
from windtunnel.workload.identity import Module
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable


@dataclass(frozen=True)
class OperatorRow:
    """All calls of one operator with equal inputs, in one pass and module. `seconds`: of the device (of a CPU: its own); rates are
    FLOP/s and B/s, None where the shapes do not say them; `peak`: the larger share of the GPU's rates; `bound`: compute, memory, or
    launch of kernels that are shorter than one; empty where the trace doesn't say it, and then `why` not; `predicted`: seconds of
    all calls by the kernel models of the trace's GPU."""

    op: str
    kind: str
    module: str
    phase: str
    shapes: str
    dtype: str
    number: int
    seconds: float
    share: float
    flops_rate: float | None
    bytes_rate: float | None
    peak: float | None
    bound: str
    predicted: float | None
    why: str = ""


LAUNCH = 4.5e-6
"""s. A host takes as long to launch a kernel: the median of cudaLaunchKernel is 3.0 to 4.9 µs in traces of H100 that TraceLens and
DeepSeek publish, 6 µs and more in HTA's of older hosts."""

CALLS = ("record_param_comms", "c10d::", "_c10d_functional::", "nccl:")
"""How names of operators of communication begin."""

FULL = 0.5
"""Share of a peak from which a short kernel is bound by that."""


def operators_of_source(source: object, run: Run, gpu: str | None = None) -> tuple[OperatorRow, ...]:
    """The operators of a run's traces, or, where these have none, the kernels with the work that XLA's programs in the files of
    `source` say. `gpu`: of traces that don't name one of the catalogue. UnknownName for one that is none."""
    stated = None if gpu is None else load_gpu(gpu)
    if any(trace.operators for trace in run.ranks):
        return operators_of(run.ranks, stated)
    named = [source] if isinstance(source, (str, Path)) else source
    files = [name for name in named if isinstance(name, (str, Path))] if isinstance(named, (list, tuple)) else []
    return operators_of_run(run, work_of([Path(name) for name in files if str(name).endswith(".pb")]), stated)


def operators_of_run(run: Run, work: Mapping[str, XlaWork], stated: GPU | None = None) -> tuple[OperatorRow, ...]:
    """What ran on the devices of a run by name, of all ranks together, the longest first. `work`: of one execution, by name;
    `stated`: the GPU, where the run doesn't name one of the catalogue."""
    ran: dict[str, list[float]] = {}
    for trace in run.ranks:
        events = trace.events
        there = np.isin(events.kind, ON_DEVICE)
        number = np.bincount(events.name[there])
        seconds = np.bincount(events.name[there], events.seconds[there])
        for name in np.flatnonzero(number).tolist():
            sums = ran.setdefault(events.names[name], [0, 0.0])
            sums[0] += int(number[name])
            sums[1] += float(seconds[name])
    device = next((trace.device for trace in run.ranks if trace.device), "")
    gpu = next((found for trace in run.ranks if (found := _gpu_named(trace.device)) is not None), stated)
    rows = []
    for text, (number_of, took) in ran.items():
        does = work.get(text, XlaWork(0.0, 0.0, ""))
        call = {
            "name": text, "op": kernel_classes.class_of(text), "module": "", "phase": "", "dtype": does.dtype, "shapes": (),
            "number": int(number_of), "seconds": took, "flops": does.flops or None, "bytes": does.bytes or None,
            "device": device, "alone": not work,
        }  # fmt: skip
        rows.append(_row(call, gpu, None))
    return _with_shares(rows)


def _gpu_named(name: str) -> GPU | None:
    try:
        return match_gpu(name) if name else None
    except UnknownName:
        return None


def _with_shares(rows: Sequence[OperatorRow]) -> tuple[OperatorRow, ...]:
    total = sum(row.seconds for row in rows) or 1.0
    return tuple(sorted((replace(row, share=row.seconds / total) for row in rows), key=lambda row: -row.seconds))


def operators_of(traces: Sequence[RankTrace], stated: GPU | None = None) -> tuple[OperatorRow, ...]:
    """The operators of traces of PyTorch's profiler, the longest first; their seconds add up to those of the kernels (of the
    operators, without a device). `stated`: the GPU of a trace that doesn't name one of the catalogue."""
    return _with_shares([row for trace in traces for row in _rows_of(trace, stated)])


def _rows_of(trace: RankTrace, stated: GPU | None) -> list[OperatorRow]:
    gpu = _gpu_named(trace.device) or stated
    device = trace.device if np.isin(trace.events.kind, ON_DEVICE).any() else None
    calls = [{**_describe_calls(one), "device": device} for one in trace.operators]
    known = [(place, op) for place, call in enumerate(calls) if gpu is not None and (op := _op(call)) is not None]
    predicted: dict[int, float] = {}
    if known and gpu is not None:
        priced = estimate(OpTable.of([op for _, op in known]), gpu, load_runtime("torchtitan"), factors={})
        predicted = {place: float(seconds) for (place, _), seconds in zip(known, priced.seconds.tolist(), strict=True)}
    return [_row(call, gpu, predicted.get(place)) for place, call in enumerate(calls)]


def _describe_calls(calls: OperatorCalls) -> dict[str, Any]:
    op, shapes = calls.op, calls.shapes
    dtype = next((FORMATS[name] for name in calls.dtypes if name in FORMATS), "")
    call: dict[str, Any] = {
        "name": op, "op": class_of(op), "module": calls.module, "phase": calls.phase, "dtype": dtype, "shapes": shapes,
        "number": calls.number, "seconds": calls.seconds, **sizes(op, shapes),
    }  # fmt: skip
    if call["op"] == "attention" and attention_inputs(op, shapes)[0]:
        call["causal"] = True
    worked = with_work({**call, "dtype": dtype or "fp32"})
    moved = worked["bytes"] if call["op"] in ("gemm", "attention") else moved_bytes(op, shapes, dtype)
    return {**call, "flops": worked["flops"] if dtype else None, "bytes": moved if dtype else None}


def _op(call: dict[str, Any]) -> Op | None:
    """The row of the operator graph with that shape; None where the trace does not say what it computes."""
    kind = KINDS.get(call["op"])
    if kind is None or not call["dtype"] or not (call["bytes"] or call["flops"]):
        return None
    if kind is Kind.ATTENTION and call["phase"] == "backward":
        kind = Kind.ATTENTION_BACKWARD
    return Op(
        call["name"], kind, PHASES[call["phase"]], Module.NONE, DTYPES.index(call["dtype"]), call.get("batch") or 1,
        call.get("m") or 1, call.get("n") or 1, call.get("k") or 1, call.get("heads_per_kv") or 1, call["flops"] or 0.0,
        call["bytes"] or 0.0,
    )  # fmt: skip


def _row(call: dict[str, Any], gpu: GPU | None, predicted: float | None) -> OperatorRow:
    number, seconds = call["number"], call["seconds"]
    flops, moved = ((number * call[name] / seconds) if call[name] and seconds > 0 else None for name in ("flops", "bytes"))
    shares: dict[str, float] = {}
    if gpu is not None and flops is not None and call["dtype"] == "fp32" and gpu.peak.get("fp32", np.inf) < flops:
        call = {**call, "dtype": "tf32"}  # faster than fp32 can be: on tensor cores
    if gpu is not None and flops is not None and gpu.peak.get(call["dtype"]):
        shares["compute"] = flops / gpu.peak[call["dtype"]]
    if gpu is not None and moved is not None:
        shares["memory"] = moved / gpu.memory_bandwidth
    bound = max(shares, key=lambda name: shares[name], default="")
    launched = call["device"] is not None and seconds < number * LAUNCH
    peak = shares.get(bound)
    if launched and (peak is None or peak < FULL):
        bound = "launch"
    listed = " ".join("x".join(map(str, shape)) for shape in call["shapes"] if shape)
    return OperatorRow(
        call["name"], call["op"], call["module"], call["phase"], listed, call["dtype"], number, seconds, 0.0, flops, moved,
        peak, bound, None if predicted is None else number * predicted, "" if bound else _why_not(call, gpu),
    )  # fmt: skip


def _why_not(call: dict[str, Any], gpu: GPU | None) -> str:
    """Why nothing is known of what bounds a call."""
    if call["device"] is None:
        return "ran on the host"
    if call["flops"] is None and call["bytes"] is None:
        if call["name"].startswith(CALLS) or library_of(call["name"]):
            return "communication"
        if call["name"] in (NO_LAUNCH, FROM_GRAPH):
            return "no operator seen"
        if call.get("alone"):
            return "the trace has the kernel's name alone"
        if call["shapes"] and not call["dtype"]:
            return "no floating-point input"
        return "no count of its work" if call["shapes"] or "alone" in call else "no shapes recorded"
    named = call["device"] or "a device without a name"
    return f"peaks of {named} unknown: --gpu" if gpu is None else f"no peak in {call['dtype'] or 'this format'}"
