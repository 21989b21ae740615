"""All that is read off a run alone: the breakdown, the calls, the clocks and the waiting, as data.

The communication calls of a run by kind, group and size: how often, how long, at what bus bandwidth.

HolisticTraceAnalysis' figures of a rank, by its definitions, so that a user can check a run against the tool.

Source: hta/analyzers/breakdown_analysis.py and communication_analysis.py of facebookresearch/HolisticTraceAnalysis (0.5.0;
0.6.0 no longer books `Stream Wait Event` as computation).
They differ from `breakdown` in three ways. With several profiler steps the last is left out, with what it launched. Times of
traces that have fractions of a microsecond are cut to whole ones, begins up and ends down. Whatever has a stream counts as busy,
synchronisations too, and calls are known by NCCL's and HCCL's names alone. One thing differs on purpose: HTA gives a kernel whose
launch is not in the trace the time of the file's first row, which moves its gap among host_wait and kernel_wait.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.records.intervals import length, overlap, union
from windtunnel.records.run import ON_DEVICE, EventKind, Events, RankTrace, Run
from windtunnel.runs.breakdown import StepTime, Waits, breakdown, waits_of
from windtunnel.runs.operators import OperatorRow
from windtunnel.traces.clocks import Clocks, align
from windtunnel.traces.matching import match_calls
from windtunnel.traces.windows import launch_of

NEAR_US = 30.0
"""Gap under which HTA takes an idle stream as the delay of a launch (its default `consecutive_kernel_delay`)."""

_PART = 1 << 16
"""Events that are looked at together."""
_COMM = re.compile(r"^nccl|^hip|^hccl|.*ncclKernel")
_MEMORY = re.compile(r"^(?:hip)?Memcpy|^(?:hip)?Memset|^dma")
_NOT_COMPUTE = re.compile(r"^nccl|.*Memcpy|.*Memset|.*dma|^.*Sync|^hip|^hccl")


@dataclass(frozen=True)
class StreamIdle:
    """Idle microseconds of a stream by HTA's category."""

    stream: int
    host_wait: float
    kernel_wait: float
    other: float


@dataclass(frozen=True)
class HtaFigures:
    """HTA's `get_temporal_breakdown`, `get_comm_comp_overlap` and `get_idle_time_breakdown` of one rank. Microseconds; NaN overlap
    where no call ran."""

    rank: int
    kernel_time: float
    idle_time: float
    compute_time: float
    non_compute_time: float
    overlap_percent: float
    streams: tuple[StreamIdle, ...]


def hta_figures(run: Run) -> tuple[HtaFigures, ...]:
    """The figures of every rank with events on a device."""
    return tuple(figures for trace in run.ranks if (figures := _of_rank(run, trace)) is not None)


def _of_rank(run: Run, trace: RankTrace) -> HtaFigures | None:
    events = trace.events
    has_stream = np.isin(events.kind, ON_DEVICE) | (
        (events.kind == EventKind.SYNC) & _events_named(events, r"Stream|Event Sync|Context Sync")
    )
    has_stream &= events.lane >= 0
    rows = np.flatnonzero(has_stream & _kept_events(run, trace))
    if not len(rows):
        return None
    whole = _are_whole(events)
    begin, end = _begin_us(events, rows, whole), _end_us(events, rows, whole)
    comm, compute = _events_named(events, _COMM)[rows], ~_events_named(events, _NOT_COMPUTE)[rows]
    busy = union(begin, end)
    kernel_time = float(busy[1][-1] - busy[0][0])
    idle = kernel_time - length(busy)
    computing, calls = union(begin[compute], end[compute]), union(begin[comm], end[comm])
    together = 100.0 * overlap(computing, calls) / length(calls) if length(calls) > 0 else float("nan")
    work = length(computing)
    streams = _stream_idle(events, rows[np.isin(events.kind[rows], ON_DEVICE)], whole)
    return HtaFigures(trace.rank, kernel_time, idle, work, kernel_time - work - idle, together, streams)


def _are_whole(events: Events) -> bool:
    """Whether all events begin at whole microseconds, to a thousandth."""
    begins = (np.round(events.begin[at : at + _PART] * 1e6, 3) for at in range(0, len(events), _PART))
    return not any(bool(np.any(begin != np.round(begin))) for begin in begins)


def _begin_us(events: Events, rows: Int64s, whole: bool) -> Floats:
    """Where rows begin, in whole microseconds: those inside of the event."""
    begin = np.round(events.begin[rows] * 1e6, 3)
    return begin if whole else np.ceil(begin)


def _end_us(events: Events, rows: Int64s, whole: bool) -> Floats:
    """Where they end, alike."""
    end = np.round((events.begin[rows] + events.seconds[rows]) * 1e6, 3)
    return end if whole else np.floor(end)


def _kept_events(run: Run, trace: RankTrace) -> Bools:
    """Events of the device that the host launched before the last profiler step began; all of them with fewer than two steps."""
    mine = run.steps.rank == trace.rank
    begins = run.steps.begin[mine]
    if len(np.unique(run.steps.step[mine])) < 2:
        return np.ones(len(trace.events), bool)
    events = trace.events
    owner = launch_of(events)
    sync = (events.kind == EventKind.SYNC) & (events.correlation >= 0)
    early = np.unique(events.correlation[np.isin(events.kind, (EventKind.LAUNCH, EventKind.SYNC)) & (events.begin < begins.max())])
    launched: Bools = (owner >= 0) & (events.begin[owner] < begins.max())
    rows = np.flatnonzero(sync)
    launched[rows] |= np.isin(events.correlation[rows], early)
    return launched


def _stream_idle(events: Events, rows: Int64s, whole: bool) -> tuple[StreamIdle, ...]:
    owner = launch_of(events)
    streams = []
    for lane in np.unique(events.lane[rows]):
        mine = rows[events.lane[rows] == lane]
        begin = _begin_us(events, mine, whole)
        order = np.argsort(begin, kind="stable")
        mine, begin = mine[order], begin[order]
        end, launch = _end_us(events, mine, whole)[:-1], owner[mine[1:]].astype(np.int64)
        gap = begin[1:] - end
        host = np.where(launch >= 0, _begin_us(events, launch, whole), -np.inf) > end
        near = ~host & (gap < NEAR_US)
        streams.append(StreamIdle(int(lane), float(gap[host].sum()), float(gap[near].sum()), float(gap[~host & ~near].sum())))
    return tuple(streams)


def _events_named(events: Events, pattern: str | re.Pattern[str]) -> Bools:
    matcher = re.compile(pattern)
    hit = np.array([matcher.match(name) is not None for name in events.names] or [False])
    return np.asarray(hit[events.name], bool)


@dataclass(frozen=True)
class CallRow:
    """Calls of one kind, group and size on all traced ranks. `bytes`: the total buffer, NaN unknown; `size`: ranks of the group,
    0 unknown; seconds of all, of the fastest and of the median; `bus`: B/s of the median call as nccl-tests defines it, NaN
    unknown.
    """

    comm: str
    group: str
    size: int
    bytes: float
    count: int
    seconds: float
    shortest: float
    median: float
    bus: float


def call_table(run: Run) -> tuple[CallRow, ...]:
    """Rows by total time. Calls of the host count only where no rank has a device."""
    kind = EventKind.CALL if any(np.any(t.events.kind == EventKind.CALL) for t in run.ranks) else EventKind.OPERATOR
    book: dict[tuple[int, str, int, float], list[float]] = {}
    for trace in run.ranks:
        events = trace.events
        rows = np.flatnonzero((events.kind == kind) & (events.comm != Comm.NONE))
        for row in rows.tolist():
            group = int(events.group[row])
            name = events.group_names[group] if 0 <= group < len(events.group_names) else ""
            size = (
                len(events.groups[group])
                if group >= 0
                else 2
                if events.comm[row] == Comm.SEND_RECV and events.peer[row] >= 0
                else 0
            )
            number = float(events.bytes[row])
            book.setdefault((int(events.comm[row]), name, size, number if number == number else -1.0), []).append(
                float(events.seconds[row])
            )
    table = [_row(*key, np.array(times)) for key, times in book.items()]
    return tuple(sorted(table, key=lambda row: -row.seconds))


def bus_factor(comm: Comm, size: int) -> float:
    """What nccl-tests multiplies the algorithm bandwidth with (its PERFORMANCE.md); NaN for a group of unknown size."""
    if comm in (Comm.BROADCAST, Comm.REDUCE, Comm.SEND_RECV):
        return 1.0
    if size < 1:
        return float("nan")
    return (2.0 if comm is Comm.ALL_REDUCE else 1.0) * (size - 1) / size


def _row(comm: int, group: str, size: int, number: float, times: Floats) -> CallRow:
    median = float(np.median(times))
    known = number if number >= 0 else float("nan")
    bus = known / median * bus_factor(Comm(comm), size) if median > 0 else float("nan")
    return CallRow(Comm(comm).name.lower(), group, size, known, len(times), float(times.sum()), float(times.min()), median, bus)


_LOOSE = 1e-3
"""Seconds between the ends of matched calls above which a match is doubtful: a collective ends everywhere within microseconds."""


@dataclass(frozen=True)
class RankMean:
    """The mean step of a rank, in seconds; the parts as in `StepTime`."""

    rank: int
    steps: int
    seconds: float
    compute: float
    exposed: float
    hidden: float
    copy: float
    host: float
    sync: float
    queue: float
    unknown: float


@dataclass(frozen=True)
class RunReport:
    """What a run says alone. `classes`: kernel seconds of a mean step of a mean rank, the largest first."""

    run: Run
    steps: tuple[StepTime, ...]
    classes: dict[str, float]
    calls: tuple[CallRow, ...]
    clocks: Clocks
    waits: Waits
    hta: tuple[HtaFigures, ...]
    notes: tuple[str, ...] = ()
    operators: tuple[OperatorRow, ...] = ()
    """Operators by shape, the longest first; none for runs that are no traces of PyTorch's profiler."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; seconds and bytes."""
        return as_json(self)


def report_of(run: Run, operators: tuple[OperatorRow, ...] = ()) -> RunReport:
    """The report of a run; clocks are aligned where calls of several ranks match. `operators`: of its files, which a run does not
    keep."""
    matches = match_calls(run)
    aligned, clocks = align(run, matches)
    steps = breakdown(run)
    notes = []
    if matches.guessed:
        notes.append("The traces name no groups: calls of one kind are matched in order over all ranks.")
    if matches.unmatched and len(run.ranks) > 1:
        notes.append(f"{matches.unmatched} calls have no partner in the other traces.")
    if clocks.calls and clocks.residual_median > _LOOSE:
        notes.append("The ends of matched calls differ by more than a millisecond: take the waiting with care.")
    return RunReport(
        run, steps, _classes(steps), call_table(run), clocks, waits_of(aligned, matches), hta_figures(run), tuple(notes), operators
    )


def rank_means(steps: Sequence[StepTime]) -> tuple[RankMean, ...]:
    """The mean step of every rank."""
    ranks = sorted({step.rank for step in steps})
    parts = ("seconds", "compute", "exposed", "hidden", "copy", "host", "sync", "queue", "unknown")
    means = []
    for rank in ranks:
        mine = [step for step in steps if step.rank == rank]
        means.append(RankMean(rank, len(mine), *(float(np.mean([getattr(step, part) for step in mine])) for part in parts)))
    return tuple(means)


def as_json(report: RunReport) -> dict[str, Any]:
    """Stable keys; seconds, bytes and bytes a second. `hta` holds HTA's figures in its own units."""
    return {
        "source": report.run.source,
        "facts": dict(report.run.facts),
        "ranks": [asdict(mean) for mean in rank_means(report.steps)],
        "steps": [asdict(step) for step in report.steps],
        "kernel_classes": report.classes,
        "calls": [asdict(row) for row in report.calls],
        "clocks": {
            "offset": dict(zip([str(t.rank) for t in report.run.ranks], report.clocks.offset.tolist(), strict=True)),
            "drift": report.clocks.drift.tolist(),
            "one_clock": report.clocks.joined,
            "matched_calls": report.clocks.calls,
            "residual_median": report.clocks.residual_median,
            "residual_p95": report.clocks.residual_p95,
        },
        "waiting": {"ranks": [asdict(wait) for wait in report.waits.ranks], "matrix": report.waits.matrix.tolist()},
        "hta": [asdict(one) for one in report.hta],
        "notes": list(report.notes),
        "operators": [asdict(row) for row in report.operators],
    }


def _classes(steps: Sequence[StepTime]) -> dict[str, float]:
    summed: dict[str, float] = {}
    for step in steps:
        for name, seconds in step.classes.items():
            summed[name] = summed.get(name, 0.0) + seconds / len(steps)
    return dict(sorted(summed.items(), key=lambda item: -item[1]))
