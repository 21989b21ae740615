"""The measured graph of a run: what ran, in which order, and what each part waited for.

Every kernel, call and copy is a task of its stream, every launch and every wait of the host a task of its thread. The time that
nothing explains stays in the graph as tasks of its own: `host gap` between launches, `launch delay` from a launch to its kernel,
`stream gap` between queued kernels. So the graph replayed unchanged gives the measured times, and each part can be changed alone.

What a task waited for is taken from the trace where the trace shows it (order of a stream, correlation of a launch, matched calls),
else from the times: a kernel that was queued and began right after another stream's kernel ended waited for it, and so did a thread
that went on right after another thread's work ended.

First the tasks of one rank, then the graph of all.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import SpecError
from windtunnel.records.run import ON_DEVICE, EventKind, Events, RankTrace, Run
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.traces.clocks import align
from windtunnel.traces.matching import MatchedCalls, match_calls
from windtunnel.traces.windows import launch_of, windows_of

HOST_GAP, LAUNCH_DELAY, STREAM_GAP = "host gap", "launch delay", "stream gap"
_COMPUTE, _COLLECTIVE = int(TaskKind.COMPUTE), int(TaskKind.COLLECTIVE)
LEAST = 1e-9
"""Seconds below which a gap is no task: traces are no finer."""
JUMP = 5e-5
"""Seconds that a thread has to stand still before its next event may be taken as waiting for another thread."""


@dataclass
class RankTasks:
    """Tasks in columns; dependencies count within the rank. `match`: the number of the matched call, `call`: the event of a call,
    `row`: the event that the task stands for; -1 none."""

    name: list[str] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    on_host: list[bool] = field(default_factory=list)
    lane: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)
    comm: list[int] = field(default_factory=list)
    match: list[int] = field(default_factory=list)
    call: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    begin: list[float] = field(default_factory=list)
    deps: list[list[int]] = field(default_factory=list)

    def add(
        self, name: str, begin: float, seconds: float, lane: int, deps: list[int], *, host: bool, kind: int = _COMPUTE,
        size: float = float("nan"), comm: int = 0, match: int = -1, call: int = -1, row: int = -1,
    ) -> int:  # fmt: skip
        """Appends a task; its number."""
        self.name.append(name)
        self.kind.append(kind)
        self.on_host.append(host)
        self.lane.append(lane)
        self.seconds.append(max(seconds, 0.0))
        self.bytes.append(size)
        self.comm.append(comm)
        self.match.append(match)
        self.call.append(call)
        self.row.append(row)
        self.begin.append(begin)
        self.deps.append(deps if len(deps) == 1 and deps[0] >= 0 else sorted({dep for dep in deps if dep >= 0}))
        return len(self.name) - 1


@dataclass
class _Lane:
    """Where a stream or a thread stands: its number, the time up to which it has tasks, the last of them, and all ends so far."""

    number: int
    until: float
    last: int = -1
    ends: list[float] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)

    def note_end(self, task: int, end: float) -> None:
        """Notes the end of a task; ends grow within a lane."""
        self.ends.append(max(end, self.ends[-1]) if self.ends else end)
        self.tasks.append(task)

    def before(self, time: float) -> tuple[float, int]:
        """(end, task) of the last task that had ended by a time; (-inf, -1) for none."""
        at = bisect_right(self.ends, time + LEAST) - 1
        return (self.ends[at], self.tasks[at]) if at >= 0 else (-math.inf, -1)


def rank_tasks(trace: RankTrace, rows: Int64s, base: float, match: Mapping[int, int], pure: Floats) -> RankTasks:
    """The tasks of events `rows`. `base`: seconds of the common clock at time 0; `pure` [M]: seconds of the matched calls."""
    events = trace.events
    shift = trace.zero - base
    begin, end = events.begin + shift, events.begin + events.seconds + shift
    writer = _Writer(events, begin, end, match, pure, launch_of(events))
    for row in rows[np.argsort(end[rows], kind="stable")].tolist():  # what a task waited for ended before it
        writer.event(row)
    return writer.tasks


class _Writer:
    def __init__(self, events: Events, begin: Floats, end: Floats, match: Mapping[int, int], pure: Floats, owner: Int32s) -> None:
        # Lists: one element of an array costs as much as all else that is done with it.
        self.begin, self.end, self.owner = begin.tolist(), end.tolist(), owner.tolist()
        self.lane, self.size, self.comm = events.lane.tolist(), events.bytes.tolist(), events.comm.tolist()
        self.names, self.named = [str(name) for name in events.names], events.name.tolist()
        self.on_device = np.isin(events.kind, ON_DEVICE).tolist()
        self.is_call, self.is_sync = (events.kind == EventKind.CALL).tolist(), (events.kind == EventKind.SYNC).tolist()
        self.match, self.pure = match, pure
        self.tasks = RankTasks()
        self.streams: dict[int, _Lane] = {}
        self.threads: dict[int, _Lane] = {}
        self.numbers = 0
        self.task_of: dict[int, int] = {}  # row -> task
        self.gate: dict[int, tuple[int, float]] = {}  # a launch's row -> the thread's last task before it, and when it began
        self.child: dict[int, int] = {}
        for row in np.flatnonzero(owner >= 0)[::-1].tolist():
            self.child[int(owner[row])] = row
        self.waiting: dict[int, list[int]] = {}

    def event(self, row: int) -> None:
        """Adds one event with what stands before it."""
        if self.on_device[row]:
            if (launch := self.owner[row]) >= 0 and launch not in self.gate:
                self._reach(launch)
            self._device(row)
        else:
            self._host(row)

    def _lane_of(self, lanes: dict[int, _Lane], key: int) -> _Lane:
        if key not in lanes:
            lanes[key] = _Lane(self.numbers, 0.0)
            self.numbers += 1
        return lanes[key]

    def _reach(self, row: int) -> None:
        """Brings a thread to the begin of one of its events: a host gap where it has stood still. Notes the gate of a launch."""
        lane = self._lane_of(self.threads, self.lane[row])
        begin = self.begin[row]
        if begin - lane.until > LEAST:
            other = self._last_of_other_lanes(self.threads, lane, lane.until, begin) if begin - lane.until > JUMP else None
            start, deps = (lane.until, []) if other is None else (min(other[0], begin), [other[1]])
            lane.last = self.tasks.add(HOST_GAP, start, begin - start, lane.number, deps, host=True)
            lane.until = begin
            lane.note_end(lane.last, begin)
        self.gate[row] = (lane.last, begin)

    def _last_of_other_lanes(self, lanes: dict[int, _Lane], own: _Lane, after: float, before: float) -> tuple[float, int] | None:
        """(end, task) of the task on another lane that ended last inside (after, before]: what the own lane may have waited for."""
        ended = [lane.before(before) for lane in lanes.values() if lane is not own]
        return max((one for one in ended if one[0] > after + LEAST), default=None)

    def _host(self, row: int) -> None:
        if row not in self.gate:
            self._reach(row)
        lane = self._lane_of(self.threads, self.lane[row])
        begin, end = max(self.begin[row], lane.until), self.end[row]
        deps: list[int] = []
        if self.is_sync[row]:
            latest = self._last_of_other_lanes(self.streams, lane, begin, end)
        else:
            child = self.child.get(row, -1)  # a copy that blocks its caller
            done = child in self.task_of and self.begin[row] < self.end[child] <= end
            latest = (self.end[child], self.task_of[child]) if done else None
        if latest is not None:
            deps, begin = [latest[1]], max(begin, min(latest[0], end))
        if end > lane.until or lane.last < 0:
            name = self.names[self.named[row]]
            lane.last = self.tasks.add(name, begin, end - begin, lane.number, deps, host=True, row=row)
            lane.until = max(lane.until, end)
            lane.note_end(lane.last, lane.until)

    def _device(self, row: int) -> None:
        stream = self._lane_of(self.streams, self.lane[row])
        begin, end = max(self.begin[row], stream.until), self.end[row]
        gate, launched = self.gate.get(self.owner[row], (-1, 0.0))
        has_launch = self.owner[row] >= 0
        deps = [gate]
        ready = max(stream.until, launched) if has_launch else stream.until
        other = self._last_of_other_lanes(self.streams, stream, ready, begin) if begin - ready > LEAST else None
        if other is not None:
            deps.append(self._delay(other[1], other[0], begin))
        elif has_launch and launched > stream.until:
            deps.append(self._delay(gate, launched, begin))
        elif begin - stream.until > LEAST:
            self.tasks.add(STREAM_GAP, stream.until, begin - stream.until, stream.number, [], host=True)
        is_call = self.is_call[row]
        number = self.match.get(row, -1)
        seconds = float(self.pure[number]) if number >= 0 else end - begin
        stream.last = self.tasks.add(
            self.names[self.named[row]], begin, seconds, stream.number, deps, host=False, kind=_COLLECTIVE if is_call else _COMPUTE,
            size=self.size[row], comm=self.comm[row], match=number, call=row if is_call else -1, row=row,
        )  # fmt: skip
        stream.until = max(end, begin)
        stream.note_end(stream.last, stream.until)
        self.task_of[row] = stream.last

    def _delay(self, after: int, since: float, begin: float) -> int:
        """A task of its own for the time from `since` to `begin`; `after` itself where there is none."""
        if begin - since <= LEAST:
            return after
        self.numbers += 1  # a lane of its own: delays of several launches run at once
        return self.tasks.add(LAUNCH_DELAY, since, begin - since, self.numbers - 1, [after], host=True)


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
