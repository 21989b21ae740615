"""Shared by the engines: the traffic of a step's calls, and the statistics reported about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.engine.flow import Demands
from windtunnel.engine.loads import Sent
from windtunnel.network.groups.shape import members
from windtunnel.network.simulate.axis_calls import AxisCall, Machine, demand_of, plan_of, slow_down
from windtunnel.network.simulate.traffic import collisions
from windtunnel.predict.price.calibrated import call_factor
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCall, name_of
from windtunnel.predict.ranks.places import places_of
from windtunnel.spec.job import Job
from windtunnel.workload import Axis

Executions = Sequence[tuple[int, float]]
"""Number of runs and mean seconds of each call."""

MOST_SLOWED = 12
"""Maximum number of calls that are listed as slowed."""
LARGEST = 8
"""Number of calls, largest first, whose hash collisions are measured; each takes tens of milliseconds."""


def plans(on: Machine, book: CallBook, calls: Sequence[NetworkCall]) -> list[AxisCall]:
    """The traffic of each call."""
    calls_on_graph = []
    for call in calls:
        rows = _members(book.job, call)
        if call.only is not None:
            rows = rows[np.isin(places_of(book.job).replica[rows], call.only).all(axis=1)]
        plan = plan_of(on, call.comm, call.size, rows[:, ::-1] if call.back else rows, book.group(call.axis))
        calls_on_graph.append(slow_down(plan, call_factor(call.axis, book.job.calibration)))
    return calls_on_graph


def _members(job: Job, call: NetworkCall) -> Int64s:
    """Ranks of every group of a call [groups, ranks]."""
    if call.other is None:
        return members(job, call.axis, call.stage)
    return np.stack([members(job, Axis.PP, stage)[:, 0] for stage in (call.stage, call.other)], axis=1)


def names_of(calls: Sequence[NetworkCall]) -> list[str]:
    """Each call's name."""
    return [name_of(call) for call in calls]


def sent_by(demands: Demands, seen: Executions) -> Sent:
    """Bytes of all runs of each call on its links, where row p of the demands is one run of call p."""
    each = np.diff(demands.start)
    times = np.array([times for times, _ in seen], np.float64)
    return Sent(demands.links, np.repeat(np.arange(len(each)), each), demands.demand * np.repeat(times, each))


def demands_of(on: Machine, plans: Sequence[AxisCall]) -> Demands:
    """Bytes of one run of each call on its links."""
    loads = [demand_of(on, plan) for plan in plans]
    links = [np.nonzero(load)[0] for load in loads]
    none = np.zeros(0)
    return Demands(
        np.concatenate([[0], np.cumsum([len(at) for at in links])]).astype(np.int64),
        np.concatenate([none, *links]).astype(np.int32),
        np.concatenate([none, *(load[at] for load, at in zip(loads, links, strict=True))]),
    )


def slowed_calls(calls: Sequence[NetworkCall], plans: Sequence[AxisCall], seen: Executions) -> tuple[dict[str, object], ...]:
    """Calls with the largest ratio of measured seconds to seconds without other traffic, the worst first."""
    rows = [
        (mean / max(plan.seconds + call.extra, 1e-12), name_of(call), times, mean)
        for call, plan, (times, mean) in zip(calls, plans, seen, strict=True) if times
    ]  # fmt: skip
    rows.sort(key=lambda row: (-row[0], row[1]))
    return tuple(
        {"name": name, "count": times, "seconds": mean, "slowdown": ratio} for ratio, name, times, mean in rows[:MOST_SLOWED]
    )


def collision_ratios(on: Machine, plans: Sequence[AxisCall]) -> dict[str, float]:
    """Hash collisions of the worst call: load over that of an even spread, for the worst link and for the mean byte."""
    if on.sprays or on.flows > 1 or on.grid is not None:
        return {}
    most = (1.0, 1.0)
    for size in sorted({float(p.lanes.bytes.sum()) for p in plans})[-LARGEST:]:
        plan = next(p for p in plans if float(p.lanes.bytes.sum()) == size)
        measured = collisions(on.graph, plan.paths, plan.lanes.src, plan.lanes.dst, plan.lanes.bytes, plan.options)
        most = max(most, (measured.worst_factor, measured.mean_factor))
    return {"worst": most[0], "mean": most[1]}
