"""The tasks of one rank of a measured graph; see `graph`."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.records.run import ON_DEVICE, EventKind, Events, RankTrace
from windtunnel.records.trace_graph import TaskKind
from windtunnel.traces.windows import launch_of

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
    def __init__(self, events: Events, begin: Floats, end: Floats, match: Mapping[int, int], pure: Floats, owner: Int64s) -> None:
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
