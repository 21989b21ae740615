"""HolisticTraceAnalysis' figures of a rank, by its definitions, so that a user can check a run against the tool.

Source: hta/analyzers/breakdown_analysis.py and communication_analysis.py of facebookresearch/HolisticTraceAnalysis (0.5.0;
0.6.0 no longer books `Stream Wait Event` as computation).
They differ from `breakdown` in three ways. With several profiler steps the last is left out, with what it launched. Times of
traces that have fractions of a microsecond are cut to whole ones, begins up and ends down. Whatever has a stream counts as busy,
synchronisations too, and calls are known by NCCL's and HCCL's names alone. One thing differs on purpose: HTA gives a kernel whose
launch is not in the trace the time of the file's first row, which moves its gap among host_wait and kernel_wait.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.records.intervals import length, overlap, union
from windtunnel.records.run import ON_DEVICE, EventKind, Events, RankTrace, Run
from windtunnel.traces.windows import launch_of

NEAR_US = 30.0
"""Gap under which HTA takes an idle stream as the delay of a launch (its default `consecutive_kernel_delay`)."""

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
    begin, end = _whole_us(events)
    has_stream = np.isin(events.kind, ON_DEVICE) | (
        (events.kind == EventKind.SYNC) & _events_named(events, r"Stream|Event Sync|Context Sync")
    )
    has_stream &= events.lane >= 0
    chosen = has_stream & _kept_events(run, trace)
    if not chosen.any():
        return None
    comm, compute = _events_named(events, _COMM), ~_events_named(events, _NOT_COMPUTE)
    busy = union(begin[chosen], end[chosen])
    kernel_time = float(busy[1][-1] - busy[0][0])
    idle = kernel_time - length(busy)
    computing = union(begin[chosen & compute], end[chosen & compute])
    calls = union(begin[chosen & comm], end[chosen & comm])
    together = 100.0 * overlap(computing, calls) / length(calls) if length(calls) > 0 else float("nan")
    work = length(computing)
    streams = _stream_idle(events, begin, end, chosen & np.isin(events.kind, ON_DEVICE))
    return HtaFigures(trace.rank, kernel_time, idle, work, kernel_time - work - idle, together, streams)


def _whole_us(events: Events) -> tuple[Floats, Floats]:
    begin = np.round(events.begin * 1e6, 3)
    end = np.round((events.begin + events.seconds) * 1e6, 3)
    if np.all(begin == np.round(begin)):
        return begin, end
    begin, end = np.ceil(begin), np.floor(end)
    return begin, end


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


def _stream_idle(events: Events, begin: Floats, end: Floats, chosen: Bools) -> tuple[StreamIdle, ...]:
    owner = launch_of(events)
    streams = []
    for lane in np.unique(events.lane[chosen]):
        rows = np.flatnonzero(chosen & (events.lane == lane))
        rows = rows[np.argsort(begin[rows], kind="stable")]
        gap = begin[rows][1:] - end[rows][:-1]
        launched = np.where(owner[rows] >= 0, begin[owner[rows]], -np.inf)[1:]
        host = launched > end[rows][:-1]
        near = ~host & (gap < NEAR_US)
        streams.append(StreamIdle(int(lane), float(gap[host].sum()), float(gap[near].sum()), float(gap[~host & ~near].sum())))
    return tuple(streams)


def _events_named(events: Events, pattern: str | re.Pattern[str]) -> Bools:
    matcher = re.compile(pattern)
    hit = np.array([matcher.match(name) is not None for name in events.names] or [False])
    return np.asarray(hit[events.name], bool)
