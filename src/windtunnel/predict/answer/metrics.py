"""Statistics of a run: overlap, kernels, collectives, and the evidence behind the seconds."""

from __future__ import annotations

import numpy as np

from windtunnel.compute import PROVENANCES, describe
from windtunnel.engine import Timeline
from windtunnel.predict.answer.timeline import OnDemand
from windtunnel.predict.category import MOVING, idle_key
from windtunnel.predict.prediction import KernelRow
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.runs.step_run import StepRun
from windtunnel.workload import Kind, Phase, Workload
from windtunnel.workload import executions as executions

MODELLED_NETWORK = 0.15
"""Relative error assumed for the part of a step outside of kernels: communication, waiting, host."""


def overlapped_seconds(timeline: Timeline, stage: int, parts: dict[str, float]) -> dict[str, float]:
    """Seconds of communication that ran beside computation, by category: busy time of its streams less what was exposed."""
    streams = timeline.busy[stage, 1:].sum(axis=0)
    hidden = {}
    for category in MOVING:
        seconds = float(streams[category]) - parts.get(idle_key(category), 0.0)
        if seconds > 1e-12:
            hidden[category.key] = seconds
    return hidden


class KernelRows(OnDemand[KernelRow]):
    """One row per distinct computation of a stage, longest first.

    Rows of the graph with the same name, phase and shape are merged: chunks of a product, layers of several kinds.
    """

    def __init__(self, workload: Workload, costs: Costs, stage: int, step: float) -> None:
        self.ops, self.counts, self.step = workload.ops, executions(workload, stage), step
        self.seconds, self.estimate = costs.seconds, costs.estimate

    def _key(self) -> tuple[KernelRow, ...]:
        return self._all()

    def _make(self) -> tuple[KernelRow, ...]:
        ops, counts, estimate = self.ops, self.counts, self.estimate
        totals = counts * self.seconds
        of = np.nonzero((counts > 0) & (ops.kind != Kind.COMM) & (ops.launches > 0))[0]
        columns = (
            ops.kind,
            ops.phase,
            estimate.provenance,
            counts,
            counts * ops.launches,
            totals,
            totals * estimate.relative_error,
        )
        same: dict[tuple[str, str, int, int, str, int], list[float]] = {}
        for r, kind, phase, code, *amounts in zip(of.tolist(), *(column[of].tolist() for column in columns), strict=True):
            sums = same.setdefault((ops.names[r], ops.modules[r], kind, phase, describe(ops, r), code), [0.0] * len(amounts))
            for place, amount in enumerate(amounts):
                sums[place] += amount
        rows = [
            KernelRow(
                name,
                module,
                Kind(kind).name.lower(),
                Phase(phase).name.lower(),
                shape,
                int(launches),
                seconds / runs,
                seconds,
                seconds / self.step,
                PROVENANCES[code],
                error / seconds if seconds else 0.0,
            )
            for (name, module, kind, phase, shape, code), (runs, launches, seconds, error) in same.items()
        ]
        return tuple(sorted(rows, key=lambda row: -row.seconds_total))


def evidence(workload: Workload, costs: Costs, stage: int, step: float) -> tuple[dict[str, float], dict[str, float], float]:
    """Shares of the step's seconds by kind of evidence and by source, and the relative error that they imply.

    Errors of one kernel class on one GPU come from one calibration; they are not independent, so they add up linearly.
    """
    ops, counts = workload.ops, executions(workload, stage)
    compute = ops.kind != Kind.COMM
    seconds = counts * costs.seconds
    shares = {
        name: float(seconds[compute & (costs.estimate.provenance == code)].sum()) / step for code, name in enumerate(PROVENANCES)
    }
    outside_kernels = max(0.0, 1.0 - sum(shares.values()))
    shares["modelled"] += outside_kernels
    error = float((seconds * costs.estimate.relative_error)[compute].sum()) / step + outside_kernels * MODELLED_NETWORK
    by_source = np.bincount(costs.estimate.source[compute], seconds[compute], len(costs.estimate.sources)) / step
    sources: dict[str, float] = {}
    for name, share in zip(costs.estimate.sources, by_source.tolist(), strict=True):
        if share > 0.0:
            sources[name] = sources.get(name, 0.0) + share
    return {name: share for name, share in shares.items() if share > 0.0}, sources, error


def collective_rows(ran: StepRun) -> tuple[dict[str, object], ...]:
    """One row per distinct communication call of the step: size, group, what NCCL would choose, time and bus bandwidth; counts are
    those of the pacing stage. Sizes that differ by less than a byte are one."""
    stage, ops = ran.pacing, ran.workload.ops
    book, counts = ran.costs[stage].calls, executions(ran.workload, stage)
    labels: dict[CallKey, str] = {}
    inside: dict[CallKey, float] = {}
    for row, key in ran.costs[stage].call_of.items():
        labels.setdefault(key, ops.names[row])
        inside[key] = inside.get(key, 0.0) + float(counts[row])
    rows: dict[tuple[str, str, int], dict[str, object]] = {}
    for key in ran.calls():
        price, group = book.price_of(key), book.group(key.axis)
        axis, call = key.axis.name.lower(), key.comm.name.lower()
        count = int(inside.get(key, 0.0) or ran.lowered.calls[stage][key])
        alike = (axis, call, round(key.size))
        if alike in rows:
            rows[alike]["count"] = int(str(rows[alike]["count"])) + count
            continue
        rows[alike] = {
            "name": labels.get(key, f"{axis} {call}"),
            "axis": axis,
            "op": call,
            "bytes": key.size,
            "ranks": group.ranks,
            "nodes": group.nodes,
            "algorithm": price.algorithm,
            "protocol": price.protocol,
            "channels": price.channels,
            **({"dimensions": price.dimensions} if price.dimensions else {}),
            "time_us": price.seconds * 1e6,
            "busbw_GBs": price.bus_bandwidth / 1e9,
            "count": count,
        }
    return tuple(sorted(rows.values(), key=lambda row: (str(row["axis"]), str(row["name"]), float(str(row["bytes"])))))
