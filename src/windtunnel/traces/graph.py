"""The measured graph of a run: what ran, in which order, and what each part waited for.

Every kernel, call and copy is a task of its stream, every launch and every wait of the host a task of its thread. The time that
nothing explains stays in the graph as tasks of its own: `host gap` between launches, `launch delay` from a launch to its kernel,
`stream gap` between queued kernels. So the graph replayed unchanged gives the measured times, and each part can be changed alone.

What a task waited for is taken from the trace where the trace shows it (order of a stream, correlation of a launch, matched
calls), else from the times: a kernel that was queued and began right after another stream's kernel ended waited for it, and so did
a thread that went on right after another thread's work ended.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.records.run import ON_DEVICE, EventKind, Run
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.traces.clocks import align
from windtunnel.traces.matching import MatchedCalls, match_calls
from windtunnel.traces.rank_tasks import RankTasks, rank_tasks
from windtunnel.traces.windows import launch_of, windows_of


def graph_of(run: Run, step: int | None = None) -> TraceGraph:
    """The graph of a run, or of one step on all of its ranks. SpecError for a run without events, or a step that it lacks.

    A call that was matched across ranks lasts from the last arrival to its end, and meets its partners by `group`, in order, with
    the number of the match as `tag`. A call without partners in the trace keeps its measured time and meets nobody. A kernel that
    overlaps the one before it on its stream lasts from that one's end. Delays and gaps count as the host's: no GPU shortens them.
    """
    return graph_and_rows(run, step)[0]


def graph_and_rows(run: Run, step: int | None = None) -> tuple[TraceGraph, Int64s]:
    """The same, and [N] the event of its rank that each task stands for; -1 for the time between events."""
    matches = match_calls(run)
    run, _ = align(run, matches)
    chosen = [_rows_of_step(run, index, step) for index in range(len(run.ranks))]
    if not any(len(rows) for rows in chosen):
        wanted = "a run with events, such as profiler traces; a log has none" if step is None else f"a run with step {step}"
        raise SpecError("RUN", run.source, wanted)
    matches = _whole_matches(matches, chosen)
    base = min(
        float(trace.zero + trace.events.begin[rows].min()) for trace, rows in zip(run.ranks, chosen, strict=True) if len(rows)
    )
    pure = _pure(run, matches)
    parts = []
    for index, (trace, rows) in enumerate(zip(run.ranks, chosen, strict=True)):
        mine = matches.trace == index
        match = dict(zip(matches.row[mine].tolist(), matches.call[mine].tolist(), strict=True))
        parts.append(rank_tasks(trace, rows, base, match, pure))
    return _join_ranks(run, parts, matches), np.array([row for part in parts for row in part.row], np.int64)


def _rows_of_step(run: Run, index: int, step: int | None) -> Int64s:
    """Rows of a rank that become tasks: device events (of the step), their launches, and waits of the host among those."""
    trace = run.ranks[index]
    events = trace.events
    device = np.isin(events.kind, ON_DEVICE)
    if not device.any():
        return _outermost(run, index, step)
    owner = launch_of(events)
    if step is not None:
        windows = [window for window in windows_of(run, trace) if window.step == step]
        inside = np.zeros(len(events), bool)
        for window in windows:
            inside |= (events.begin >= window.begin) & (events.begin < window.end)
        device &= inside
    launches = np.unique(owner[device & (owner >= 0)])
    waits = (events.kind == EventKind.SYNC) & _of_host(run, index)
    if len(launches):
        waits &= (events.begin >= events.begin[launches].min()) & (events.begin <= events.begin[launches].max())
        if step is None:
            waits = (events.kind == EventKind.SYNC) & _of_host(run, index)
    else:
        waits &= False
    return np.union1d(np.union1d(np.flatnonzero(device), launches), np.flatnonzero(waits))


def _of_host(run: Run, index: int) -> Bools:
    """Synchronisations that a thread of the host called, not those that the device reports."""
    events = run.ranks[index].events
    called = np.array(["Synchronize" in name for name in events.names] or [False])
    return np.asarray(called[events.name], bool)


def _outermost(run: Run, index: int, step: int | None) -> Int64s:
    """Operators of a trace without a device that lie in no other operator of their thread."""
    events = run.ranks[index].events
    rows = np.flatnonzero(events.kind == EventKind.OPERATOR)
    if step is not None:
        windows = [window for window in windows_of(run, run.ranks[index]) if window.step == step]
        rows = rows[[any(w.begin <= events.begin[row] < w.end for w in windows) for row in rows]] if len(rows) else rows
    kept: list[int] = []
    until: dict[int, float] = {}
    for row in rows.tolist():
        lane, end = int(events.lane[row]), float(events.begin[row] + events.seconds[row])
        if events.begin[row] >= until.get(lane, -np.inf):
            kept.append(row)
            until[lane] = end
    return np.array(kept, np.int64)


def _whole_matches(matches: MatchedCalls, chosen: list[Int64s]) -> MatchedCalls:
    """The matches of which every part was chosen, numbered anew."""
    inside = np.zeros(len(matches.row), bool)
    for index, rows in enumerate(chosen):
        mine = matches.trace == index
        inside[mine] = np.isin(matches.row[mine], rows)
    whole = np.ones(len(matches), bool)
    whole[matches.call[~inside]] = False
    number = np.cumsum(whole) - 1
    kept = whole[matches.call]
    return replace(
        matches, call=number[matches.call[kept]], trace=matches.trace[kept], row=matches.row[kept], comm=matches.comm[whole]
    )


def _pure(run: Run, matches: MatchedCalls) -> Floats:
    """[M] seconds of each match from its last arrival to its end: the shortest of its parts."""
    pure = np.full(len(matches), np.inf)
    for index, trace in enumerate(run.ranks):
        mine = matches.trace == index
        np.minimum.at(pure, matches.call[mine], trace.events.seconds[matches.row[mine]])
    return pure


def _groups(run: Run, matches: MatchedCalls, parts: list[RankTasks]) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
    """The group of every task, -1 none, and the ranks of the groups.

    A matched call has its communicator as group, or the ranks that took part where the trace does not name one. A call that no
    other traced rank belongs to has its communicator too, so that a network can price it; it meets nobody in the graph.
    """
    numbers: dict[tuple[tuple[int, ...], str, bool], int] = {}
    traced = {trace.rank for trace in run.ranks}
    members: list[list[int]] = [[] for _ in range(len(matches))]
    for call, index in zip(matches.call.tolist(), matches.trace.tolist(), strict=True):
        members[call].append(run.ranks[index].rank)
    of_task = []
    for trace, part in zip(run.ranks, parts, strict=True):
        events = trace.events
        for row, match in zip(part.call, part.match, strict=True):
            group = int(events.group[row]) if row >= 0 else -1
            ranks = events.groups[group] if group >= 0 else ()
            pair = row >= 0 and events.comm[row] == Comm.SEND_RECV
            if match >= 0 and (pair or not ranks):
                ranks = tuple(sorted(members[match]))
            if not ranks or (match < 0 and (pair or len(traced.intersection(ranks)) > 1)):
                of_task.append(-1)
                continue
            name = events.group_names[group] if 0 <= group < len(events.group_names) else ""
            of_task.append(numbers.setdefault((ranks, name, pair), len(numbers)))
    return of_task, tuple(ranks for ranks, _, _ in numbers)


def _join_ranks(run: Run, parts: list[RankTasks], matches: MatchedCalls) -> TraceGraph:
    """One graph of the ranks' tasks, rank by rank."""
    of_task, members = _groups(run, matches, parts)
    names: dict[str, int] = {}
    starts = np.cumsum([0] + [len(part.seconds) for part in parts])
    deps = [[int(starts[i]) + dep for dep in wanted] for i, part in enumerate(parts) for wanted in part.deps]
    match = np.array([m for part in parts for m in part.match], np.int64)
    kinds = np.array([kind for part in parts for kind in part.kind], np.uint8)
    return TraceGraph(
        rank_start=starts.astype(np.int64),
        name=np.array([names.setdefault(name, len(names)) for part in parts for name in part.name], np.int32),
        kind=kinds,
        on_host=np.array([host for part in parts for host in part.on_host], bool),
        lane=np.array([lane for part in parts for lane in part.lane], np.int32),
        seconds=np.array([s for part in parts for s in part.seconds], np.float64),
        flops=np.full(len(kinds), np.nan),
        bytes=np.array([b for part in parts for b in part.bytes], np.float64),
        comm=np.where(kinds == TaskKind.COLLECTIVE, np.array([c for part in parts for c in part.comm], np.uint8), 0).astype(
            np.uint8
        ),
        group=np.array(of_task, np.int32),
        peer=np.full(len(kinds), -1, np.int32),
        tag=match,
        dep_start=np.concatenate(([0], np.cumsum([len(wanted) for wanted in deps]))).astype(np.int64),
        deps=np.array([dep for wanted in deps for dep in wanted], np.int64),
        names=tuple(names),
        groups=members,
        begin=np.array([b for part in parts for b in part.begin], np.float64),
        rank_ids=np.array([trace.rank for trace in run.ranks], np.int64),
    )
