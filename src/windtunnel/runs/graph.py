"""The measured graph of a run: what ran, in which order, and what each part waited for.

Every kernel, call and copy is a task of its stream, every launch and every wait of the host a task of its thread. The time that
nothing explains stays in the graph as tasks of its own: `host gap` between launches, `launch delay` from a launch to its kernel,
`stream gap` between queued kernels. So the graph replayed unchanged gives the measured times, and each part can be changed alone.

What a task waited for is taken from the trace where the trace shows it (order of a stream, correlation of a launch, matched
calls), else from the times: a kernel that was queued and began right after another stream's kernel ended waited for it, and so did
a thread that went on right after another thread's work ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.records.run import ON_DEVICE, EventKind, Run
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.runs.clocks import align
from windtunnel.runs.matching import Matches, match_calls
from windtunnel.runs.rank_tasks import RankTasks, rank_tasks
from windtunnel.runs.windows import launch_of, windows_of

NO_MATCH = -1


@dataclass
class _Shared:
    """Names and groups of the whole graph."""

    names: dict[str, int] = field(default_factory=dict)
    groups: dict[tuple[tuple[int, ...], str], int] = field(default_factory=dict)


def graph_of(run: Run, step: int | None = None) -> TraceGraph:
    """The graph of a run, or of one step on all of its ranks. SpecError for a run without events, or a step that it lacks.

    A call that was matched across ranks lasts from the last arrival to its end, and meets its partners by `group`, in order, with
    the number of the match as `tag`. A call without partners in the trace keeps its measured time and has group -1. A kernel that
    overlaps the one before it on its stream lasts from that one's end.
    """
    matches = match_calls(run)
    run, _ = align(run, matches)
    chosen = [_chosen(run, index, step) for index in range(len(run.ranks))]
    if not any(len(rows) for rows in chosen):
        raise SpecError("RUN", run.source, "a run with events" if step is None else f"a run with step {step}")
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
    return _joined(run, parts, _groups(run, matches))


def _chosen(run: Run, index: int, step: int | None) -> Int64s:
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


def _of_host(run: Run, index: int) -> np.ndarray:  # type: ignore[type-arg]
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
    kept, until = [], {}
    for row in rows.tolist():
        lane, end = int(events.lane[row]), float(events.begin[row] + events.seconds[row])
        if events.begin[row] >= until.get(lane, -np.inf):
            kept.append(row)
            until[lane] = end
    return np.array(kept, np.int64)


def _whole_matches(matches: Matches, chosen: list[Int64s]) -> Matches:
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


def _pure(run: Run, matches: Matches) -> Floats:
    """[M] seconds of each match from its last arrival to its end: the shortest of its parts."""
    pure = np.full(len(matches), np.inf)
    for index, trace in enumerate(run.ranks):
        mine = matches.trace == index
        np.minimum.at(pure, matches.call[mine], trace.events.seconds[matches.row[mine]])
    return pure


def _groups(run: Run, matches: Matches) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
    """The group of each match, by the traces that took part, the communicator's name and whether it is a transfer; its traces."""
    numbers: dict[tuple[tuple[int, ...], str, bool], int] = {}
    of_match = []
    starts = np.searchsorted(matches.call, np.arange(len(matches) + 1))
    for match in range(len(matches)):
        part = slice(starts[match], starts[match + 1])
        members = tuple(sorted(matches.trace[part].tolist()))
        events = run.ranks[int(matches.trace[part][0])].events
        group = int(events.group[matches.row[part][0]])
        name = events.group_names[group] if 0 <= group < len(events.group_names) else ""
        key = (members, name, int(matches.comm[match]) == Comm.SEND_RECV)
        of_match.append(numbers.setdefault(key, len(numbers)))
    return of_match, tuple(members for members, _, _ in numbers)


def _joined(run: Run, parts: list[RankTasks], groups: tuple[list[int], tuple[tuple[int, ...], ...]]) -> TraceGraph:
    """One graph of the ranks' tasks, rank by rank; ranks are numbered by their place in the run."""
    of_match, members = groups
    names: dict[str, int] = {}
    starts = np.cumsum([0] + [len(part.seconds) for part in parts])
    deps = [[int(starts[i]) + dep for dep in wanted] for i, part in enumerate(parts) for wanted in part.deps]
    match = np.array([m for part in parts for m in part.match], np.int64)
    kinds = np.array([kind for part in parts for kind in part.kind], np.uint8)
    group = np.array([of_match[m] if m >= 0 else -1 for m in match.tolist()], np.int32)
    return TraceGraph(
        rank_start=starts.astype(np.int64),
        name=np.array([names.setdefault(name, len(names)) for part in parts for name in part.name], np.int32),
        kind=kinds,
        on_host=np.array([host for part in parts for host in part.on_host], bool),
        lane=np.array([lane for part in parts for lane in part.lane], np.int32),
        seconds=np.array([s for part in parts for s in part.seconds], np.float64),
        flops=np.full(len(kinds), np.nan),
        bytes=np.array([b for part in parts for b in part.bytes], np.float64),
        comm=np.where(kinds == TaskKind.COLLECTIVE, np.array([c for part in parts for c in part.comm], np.uint8), 0).astype(np.uint8),
        group=group,
        peer=np.full(len(kinds), -1, np.int32),
        tag=match,
        dep_start=np.concatenate(([0], np.cumsum([len(wanted) for wanted in deps]))).astype(np.int64),
        deps=np.array([dep for wanted in deps for dep in wanted], np.int64),
        names=tuple(names),
        groups=members,
        begin=np.array([b for part in parts for b in part.begin], np.float64),
    )
