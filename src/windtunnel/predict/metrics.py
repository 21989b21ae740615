"""Timeline and costs -> where the time goes: breakdown, kernels, collectives, critical path."""

from __future__ import annotations

import numpy as np

from windtunnel.compute import PROVENANCES, describe
from windtunnel.engine import HOST, TAIL, Timeline
from windtunnel.predict.category import COMPUTE, HOST_PART, MOVING, OVERLAP_SLOWDOWN, SLOWEST_GPU, Category, idle_key
from windtunnel.predict.costs import Costs
from windtunnel.predict.lower import Lowered
from windtunnel.predict.prediction import KernelRow
from windtunnel.workload import Axis, Comm, Kind, Phase, Stream, Workload

LAST = (Category.PIPELINE_BUBBLE, Category.SLOWER_RANKS, Category.OTHER_STAGES)
"""Waits whose keys end a breakdown."""
ALWAYS = (Category.MATMUL.key, idle_key(Category.PIPELINE_BUBBLE), HOST_PART.key)
"""Keys that a breakdown has even if they are 0."""


def breakdown(timeline: Timeline, costs: Costs, stage: int) -> dict[str, float]:
    """Seconds of one stage's compute stream by what they went to; the values add up to the step."""
    busy, idle, stretch = timeline.busy[stage, int(Stream.COMPUTE)], timeline.idle[stage], timeline.stretch[stage]
    waited = 1.0 - 1.0 / costs.slowdown
    computing = {c: float(busy[c] - stretch[c]) for c in COMPUTE}
    parts = {c.key: seconds * (1.0 - waited) for c, seconds in computing.items()}
    parts[OVERLAP_SLOWDOWN.key] = float(stretch.sum())
    parts[SLOWEST_GPU.key] = sum(computing.values()) * waited
    late = {}  # keys that stand at the end of a breakdown
    for category in Category:
        if category not in COMPUTE:
            (late if category in LAST else parts)[idle_key(category)] = float(idle[category])
    parts[HOST_PART.key] = float(idle[HOST])
    parts |= {idle_key(category): late[idle_key(category)] for category in LAST}
    parts[idle_key(Category.OTHER_STAGES)] += float(idle[TAIL]) + float(sum(idle[c] for c in COMPUTE))
    return {key: seconds for key, seconds in parts.items() if seconds > 0.0 or key in ALWAYS}


def overlapped(timeline: Timeline, stage: int, parts: dict[str, float]) -> dict[str, float]:
    """Seconds of communication that ran beside computation, by category: busy time of its streams less what was exposed."""
    streams = timeline.busy[stage, 1:].sum(axis=0)
    hidden = {}
    for category in MOVING:
        seconds = float(streams[category]) - parts.get(idle_key(category), 0.0)
        if seconds > 1e-12:
            hidden[category.key] = seconds
    return hidden


def executions(workload: Workload, stage: int) -> np.ndarray:
    """How often each row runs on one GPU of a stage in a step."""
    counts = np.zeros(len(workload.ops))
    for chunk, runs in zip(workload.stages[stage], workload.runs(stage), strict=True):
        for index, times in chunk.blocks:
            block = workload.blocks[index]
            for rows in (block.forward, block.backward):
                counts[rows.start : rows.stop] += times * runs
    counts[workload.optimizer[stage].start : workload.optimizer[stage].stop] = 1
    return counts


def kernel_rows(workload: Workload, costs: Costs, stage: int, step: float) -> tuple[KernelRow, ...]:
    """One row per distinct computation of a stage, longest first."""
    ops, counts = workload.ops, executions(workload, stage)
    totals = counts * costs.seconds
    rows = []
    for r in np.argsort(-totals, kind="stable"):
        if counts[r] == 0 or ops.kind[r] == Kind.COMM or ops.launches[r] == 0:
            continue
        rows.append(
            KernelRow(
                ops.names[r],
                ops.modules[r],
                Kind(int(ops.kind[r])).name.lower(),
                Phase(int(ops.phase[r])).name.lower(),
                describe(ops, int(r)),
                int(counts[r] * ops.launches[r]),
                float(costs.seconds[r]),
                float(totals[r]),
                float(totals[r] / step),
                PROVENANCES[int(costs.estimate.provenance[r])],
                float(costs.estimate.relative_error[r]),
            )
        )
    return tuple(rows)


def evidence(workload: Workload, costs: Costs, stage: int, step: float) -> tuple[dict[str, float], dict[str, float], float]:
    """Shares of the step's seconds resting on each kind of evidence and on each source, and the relative error that they imply.

    Errors of one kernel class on one GPU are not independent (one calibration), so they add up linearly.
    """
    ops, counts = workload.ops, executions(workload, stage)
    compute = ops.kind != Kind.COMM
    seconds = counts * costs.seconds
    shares = {
        name: float(seconds[compute & (costs.estimate.provenance == code)].sum()) / step for code, name in enumerate(PROVENANCES)
    }
    rest = max(0.0, 1.0 - sum(shares.values()))
    shares["modelled"] += rest
    error = float((seconds * costs.estimate.relative_error)[compute].sum()) / step + rest * 0.15
    by_source = np.bincount(costs.estimate.source[compute], seconds[compute], len(costs.estimate.sources)) / step
    sources: dict[str, float] = {}
    for name, share in zip(costs.estimate.sources, by_source.tolist(), strict=True):
        if share > 0.0:
            sources[name] = sources.get(name, 0.0) + share
    return {name: share for name, share in shares.items() if share > 0.0}, sources, error


def collective_rows(workload: Workload, costs: Costs, lowered: Lowered, stage: int) -> tuple[dict[str, object], ...]:
    """One row per distinct communication call of the job: size, group, what NCCL would choose, time and bus bandwidth."""
    rows = []
    names = _call_names(workload)
    counts = executions(workload, stage)
    calls: dict[tuple[Comm, Axis, float], float] = {}
    ops = workload.ops
    for r in np.nonzero(ops.kind == Kind.COMM)[0]:
        key = (Comm(int(ops.comm[r])), Axis(int(ops.axis[r])), float(ops.bytes[r]))
        calls[key] = calls.get(key, 0.0) + float(counts[r])
    for key, price in costs.network.prices.items():
        call, axis, size = key
        group = costs.network.group(axis)
        rows.append(
            {
                "name": names.get(key, f"{axis.name.lower()} {call.name.lower()}"),
                "axis": axis.name.lower(),
                "op": call.name.lower(),
                "bytes": size,
                "ranks": group.ranks,
                "nodes": group.nodes,
                "algorithm": price.algorithm,
                "protocol": price.protocol,
                "channels": price.channels,
                "time_us": price.seconds * 1e6,
                "busbw_GBs": price.bus_bandwidth / 1e9,
                "count": int(calls.get(key, 0.0) or lowered.calls[stage][key]),
            }
        )
    return tuple(sorted(rows, key=lambda row: (str(row["axis"]), str(row["name"]), float(str(row["bytes"])))))


def _call_names(workload: Workload) -> dict[tuple[Comm, Axis, float], str]:
    ops = workload.ops
    names: dict[tuple[Comm, Axis, float], str] = {}
    for r in np.nonzero(ops.kind == Kind.COMM)[0]:
        names.setdefault((Comm(int(ops.comm[r])), Axis(int(ops.axis[r])), float(ops.bytes[r])), ops.names[r])
    return names
