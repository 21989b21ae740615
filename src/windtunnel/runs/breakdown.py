"""What the time of a step went to on each rank: computation, communication shown and hidden, copies, and why the device idled.

The device computes while any kernel runs that is no call. A call is hidden while something computes, else exposed; a copy counts
where neither runs. Every moment of a step belongs to exactly one of compute, exposed, copy and the four kinds of idle time.

Which rank waits for whom: the order of arrival in every matched call.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.records.intervals import Intervals, cut, gaps_between, length, overlap, seconds_within, union
from windtunnel.records.kernel_classes import class_of
from windtunnel.records.run import ON_DEVICE, EventKind, Events, RankTrace, Run
from windtunnel.traces.matching import MatchedCalls
from windtunnel.traces.windows import Window, launch_of, windows_of


@dataclass(frozen=True)
class StreamTime:
    """One stream in a step: seconds in which a kernel, a call or a copy ran on it, and how many began."""

    stream: int
    compute: float
    communication: float
    copy: float
    events: int


@dataclass(frozen=True)
class StepTime:
    """A step on one rank, in seconds. `compute + exposed + copy + host + sync + queue + unknown = seconds`.

    Idle time by the device event that ends it: `host`: it was launched after the device fell idle; `sync`: the same while a
    thread of the host waited for the device; `queue`: it was launched before, and waited for another stream, another rank or the
    launch itself; `unknown`: the trace does not say who launched it.
    """

    rank: int
    step: int
    begin: float
    seconds: float
    compute: float
    exposed: float
    hidden: float
    copy: float
    host: float
    sync: float
    queue: float
    unknown: float
    classes: dict[str, float]  # kernel seconds by class; kernels on several streams add up
    streams: tuple[StreamTime, ...]

    @property
    def idle(self) -> float:
        return self.host + self.sync + self.queue + self.unknown


def breakdown(run: Run) -> tuple[StepTime, ...]:
    """Every step of every rank that has events on a device."""
    return tuple(time for trace in run.ranks for time in _of_rank(run, trace))


def _of_rank(run: Run, trace: RankTrace) -> Iterator[StepTime]:
    events = trace.events
    device = np.isin(events.kind, ON_DEVICE)
    if not device.any():
        return
    unions = {kind: _union_of(events, events.kind == kind) for kind in ON_DEVICE}
    busy = _union_of(events, device)
    waiting = _union_of(events, (events.kind == EventKind.SYNC) & (events.correlation >= 0))
    rows = np.flatnonzero(device)
    order = np.argsort(events.begin[rows], kind="stable")
    first = events.begin[rows][order], rows[order]
    launches = launch_of(events)
    classes, streams = _Classes(events), _Streams(events, device)
    for window in windows_of(run, trace):
        compute, calls, copies = (cut(unions[kind], window.begin, window.end) for kind in ON_DEVICE)
        hidden = overlap(compute, calls)
        either = union(np.concatenate((compute[0], calls[0])), np.concatenate((compute[1], calls[1])))
        gaps = gaps_between(busy, window.begin, window.end)
        host, sync, queue, unknown = _idle_seconds(events, gaps, first, launches, waiting)
        yield StepTime(
            trace.rank, window.step, window.begin, window.seconds, length(compute), length(calls) - hidden, hidden,
            length(copies) - overlap(either, copies), host, sync, queue, unknown,
            classes.seconds_inside(window), streams.times_inside(window),
        )  # fmt: skip


def _union_of(events: Events, rows: Bools) -> Intervals:
    begin = events.begin[rows]
    return union(begin, begin + events.seconds[rows])


def _idle_seconds(
    events: Events, gaps: Intervals, first: tuple[Floats, Int64s], launches: Int32s, waiting: Intervals
) -> tuple[float, float, float, float]:
    """Seconds of the gaps: host, sync, queue, unknown."""
    begins, rows = first
    starts, ends = gaps
    sizes = ends - starts
    place = np.searchsorted(begins, ends - 1e-12)
    known = place < len(begins)
    row = rows[np.minimum(place, len(rows) - 1)]
    launch = np.where(known, launches[row], -1)
    late = (launch >= 0) & (events.begin[launch] > starts)
    at_end = ~known  # nothing follows: the host had nothing to launch
    by_host = late | at_end
    held = np.minimum(seconds_within(waiting, starts, ends), sizes)
    sync = float(np.sum(held[by_host]))
    host = float(np.sum(sizes[by_host])) - sync
    queued = (launch >= 0) & ~late
    return host, sync, float(np.sum(sizes[queued])), float(np.sum(sizes[known & (launch < 0)]))


class _Classes:
    """Kernel seconds by class, for any window."""

    def __init__(self, events: Events) -> None:
        self.rows = np.flatnonzero(events.kind == EventKind.KERNEL)
        used = np.unique(events.name[self.rows])
        known = {int(name): class_of(events.names[name]) for name in used}
        self.labels = sorted(set(known.values()))
        codes = np.zeros(len(events.names), np.int64)
        for name, label in known.items():
            codes[name] = self.labels.index(label)
        self.code = codes[events.name[self.rows]]
        self.begin = events.begin[self.rows]
        self.end = self.begin + events.seconds[self.rows]

    def seconds_inside(self, window: Window) -> dict[str, float]:
        part = np.maximum(np.minimum(self.end, window.end) - np.maximum(self.begin, window.begin), 0.0)
        summed = np.bincount(self.code, part, minlength=len(self.labels))
        return {label: float(s) for label, s in sorted(zip(self.labels, summed, strict=True), key=lambda x: -x[1]) if s > 0}


class _Streams:
    """Seconds of each stream, for any window."""

    def __init__(self, events: Events, device: Bools) -> None:
        rows = np.flatnonzero(device)
        self.kind, self.lane, self.begin = events.kind[rows], events.lane[rows], events.begin[rows]
        self.end = self.begin + events.seconds[rows]

    def times_inside(self, window: Window) -> tuple[StreamTime, ...]:
        at = np.flatnonzero((self.begin < window.end) & (self.end > window.begin))
        kind, lanes, begin, end = self.kind[at], self.lane[at], self.begin[at], self.end[at]
        times = []
        for lane in np.unique(lanes):
            mine = lanes == lane
            masks = [mine & (kind == one) for one in ON_DEVICE]
            compute, calls, copies = (length(cut(union(begin[m], end[m]), window.begin, window.end)) for m in masks)
            count = int(np.sum(mine & (begin >= window.begin)))
            times.append(StreamTime(int(lane), compute, calls, copies, count))
        return tuple(times)


@dataclass(frozen=True)
class RankWait:
    """A rank's part in the waiting: seconds in which it waited inside calls and computed nothing, calls to which it came last,
    seconds that the others waited for it in those, and the calls where that cost most, by kind."""

    rank: int
    waited: float
    last: int
    kept_waiting: float
    calls: dict[str, float]


@dataclass(frozen=True)
class Waits:
    """R ranks: `matrix[i, j]` seconds that rank i waited in calls to which rank j came last."""

    ranks: tuple[RankWait, ...]
    matrix: Floats  # [R, R]
    calls: int


def waits_of(run: Run, matches: MatchedCalls) -> Waits:
    """Waiting in the matched calls of a run that is on one clock (`clocks.align`).

    A rank that begins a call waits until the last rank begins it, at most as long as its own call took. Calls that wait at the same
    time are one wait, which belongs to the call that began first; while a kernel computes, the rank does not wait. So no rank waits
    longer than its step takes.
    """
    count = len(run.ranks)
    base = min((trace.zero for trace in run.ranks), default=0.0)
    begin, seconds = np.empty(len(matches.row)), np.empty(len(matches.row))
    for index, trace in enumerate(run.ranks):
        mine = matches.trace == index
        begin[mine] = trace.zero - base + trace.events.begin[matches.row[mine]]
        seconds[mine] = trace.events.seconds[matches.row[mine]]
    last_begin = np.full(len(matches), -np.inf)
    np.maximum.at(last_begin, matches.call, begin)
    until = begin + np.clip(last_begin[matches.call] - begin, 0.0, seconds)
    waited = np.zeros(len(matches.row))
    for index, trace in enumerate(run.ranks):
        mine = np.flatnonzero(matches.trace == index)
        waited[mine] = _waiting_alone(begin[mine], until[mine], _computing(trace, trace.zero - base))
    order = np.lexsort((begin, matches.call))
    final = order[np.append(np.diff(matches.call[order]) > 0, True)] if len(order) else order
    culprit = np.zeros(len(matches), np.int64)
    culprit[matches.call[final]] = matches.trace[final]
    matrix = np.zeros((count, count))
    np.add.at(matrix, (matches.trace, culprit[matches.call]), waited)
    kinds = np.zeros((count, len(Comm)))
    np.add.at(kinds, (culprit[matches.call], matches.comm[matches.call]), waited)
    last = np.bincount(culprit, minlength=count) if len(matches) else np.zeros(count, np.int64)
    ranks = tuple(
        RankWait(
            trace.rank, float(matrix[i].sum()), int(last[i]), float(matrix[:, i].sum()),
            {Comm(k).name.lower(): float(kinds[i, k]) for k in np.argsort(-kinds[i]) if kinds[i, k] > 0},
        )
        for i, trace in enumerate(run.ranks)
    )  # fmt: skip
    return Waits(ranks, matrix, len(matches))


def _computing(trace: RankTrace, shift: float) -> Intervals:
    """When a rank's kernels run, calls apart; on the clock that `shift` leads to."""
    events = trace.events
    rows = events.kind == EventKind.KERNEL
    begin = events.begin[rows] + shift
    return union(begin, begin + events.seconds[rows])


def _waiting_alone(begin: Floats, until: Floats, computing: Intervals) -> Floats:
    """Seconds of each wait [begin, until) that no wait that began before it has, and in which nothing computes."""
    order = np.argsort(begin, kind="stable")
    covered = np.concatenate(([-np.inf], np.maximum.accumulate(until[order])[:-1])) if len(order) else begin
    since = np.minimum(np.maximum(begin[order], covered), until[order])
    seconds = np.empty(len(begin))
    seconds[order] = until[order] - since - seconds_within(computing, since, until[order])
    return np.maximum(seconds, 0.0)
