"""Which rank waits for whom: the order of arrival in every matched call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.comm import Comm
from windtunnel.records.intervals import Intervals, seconds_within, union
from windtunnel.records.run import EventKind, RankTrace, Run
from windtunnel.traces.matching import MatchedCalls


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
