"""One clock for the traces of several ranks.

Each trace has the clock of its host. A collective ends on all of its ranks at nearly the same moment, and so do the two ends of a
transfer; the offsets of the clocks (and, in long traces, their drifts) are those that make the ends of all matched calls agree
best, by least squares with Huber's weights, so that a few wrong matches do not count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.records.run import RankTrace, Run
from windtunnel.traces.matching import MatchedCalls, match_calls

LONG = 20.0
"""Seconds of a trace above which a drift is fitted; below it a drift of 50 parts in a million stays under a millisecond."""
FEWEST = 30
"""Matched calls of a rank for its drift."""
_ROUNDS = 20
_HUBER = 1.345  # 95 % efficiency under normal errors
_FINEST = 1e-7  # s: no trace is finer


@dataclass(frozen=True)
class Clocks:
    """What was added to the ranks' clocks: `offset` [R] seconds at each trace's zero, `drift` [R] seconds per second, both relative
    to the first rank of each component; the residuals of M matched calls (the spread of their ends after alignment, seconds).

    `component` [R]: ranks that no matched call joins keep their own clocks, and times across components mean nothing.
    """

    offset: Floats
    drift: Floats
    component: Int64s
    calls: int
    residual_median: float
    residual_p95: float

    @property
    def joined(self) -> bool:
        """Whether all ranks are on one clock."""
        return len(np.unique(self.component)) <= 1


def align(run: Run, matches: MatchedCalls | None = None) -> tuple[Run, Clocks]:
    """The run on one clock: `zero` of every rank moved, begins and lengths stretched where a drift was fitted."""
    matches = match_calls(run) if matches is None else matches
    clocks = clocks_of(run, matches)
    ranks = tuple(_move_clock(trace, clocks.offset[i], clocks.drift[i]) for i, trace in enumerate(run.ranks))
    return replace(run, ranks=ranks), clocks


def clocks_of(run: Run, matches: MatchedCalls) -> Clocks:
    """Offsets and drifts of the ranks' clocks."""
    count = len(run.ranks)
    if not len(matches):
        return Clocks(np.zeros(count), np.zeros(count), np.arange(count), 0, float("nan"), float("nan"))
    base = min(trace.zero for trace in run.ranks)
    local = np.empty(len(matches.row))
    for index, trace in enumerate(run.ranks):
        mine = matches.trace == index
        rows = matches.row[mine]
        local[mine] = trace.events.begin[rows] + trace.events.seconds[rows]
    zeros = np.array([trace.zero - base for trace in run.ranks])
    drifts = _long_enough(matches, local, count)
    offset, drift = _fit(matches, local, zeros, drifts, count)
    ends = zeros[matches.trace] + offset[matches.trace] + local * (1.0 + drift[matches.trace])
    size = np.bincount(matches.call, minlength=len(matches))
    low, high = np.full(len(matches), np.inf), np.full(len(matches), -np.inf)
    np.minimum.at(low, matches.call, ends)
    np.maximum.at(high, matches.call, ends)
    spread = (high - low)[size > 1]
    return Clocks(
        offset, drift, _components(matches, count), len(matches), float(np.median(spread)), float(np.quantile(spread, 0.95))
    )


def _fit(matches: MatchedCalls, local: Floats, zeros: Floats, drifts: bool, count: int) -> tuple[Floats, Floats]:
    """Offsets, and drifts where they are wanted: weighted normal equations with the matches' own ends eliminated."""
    from scipy import sparse

    parts = np.arange(len(local))
    design = sparse.csr_matrix((np.ones(len(local)), (parts, matches.trace)), (len(local), count))
    if drifts:
        design = sparse.hstack([design, sparse.csr_matrix((local, (parts, matches.trace)), (len(local), count))]).tocsr()
    member = sparse.csr_matrix((np.ones(len(local)), (parts, matches.call)), (len(local), len(matches)))
    target = -(zeros[matches.trace] + local)
    weight = np.ones(len(local))
    solution = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        weighted = design.multiply(weight[:, None]).tocsr()
        total = np.maximum(np.asarray(member.T @ weight).ravel(), 1e-300)
        cross = (weighted.T @ member).tocsr()
        scale = sparse.diags(1.0 / total)
        normal = (weighted.T @ design - cross @ scale @ cross.T).toarray()
        right = weighted.T @ target - cross @ (scale @ (member.T @ (weight * target)))
        fresh = _solve_least(normal, right, count)
        residual = _residuals(design, member, target, fresh, weight, total)
        sigma = max(1.4826 * float(np.median(np.abs(residual))), _FINEST)
        weight = np.minimum(1.0, _HUBER * sigma / np.maximum(np.abs(residual), 1e-300))
        settled = np.max(np.abs(fresh - solution)) < _FINEST / 10
        solution = fresh
        if settled:
            break
    return solution[:count], solution[count:] if drifts else np.zeros(count)


def _solve_least(normal: Floats, right: Floats, count: int) -> Floats:
    """The smallest solution, moved so that the first rank of all stays where it is (components are free to move)."""
    solution = np.asarray(np.linalg.lstsq(normal, right, rcond=1e-12)[0])
    solution[:count] -= solution[0]
    if len(solution) > count:
        solution[count:] -= solution[count]
    return solution


def _residuals(design: Any, member: Any, target: Floats, solution: Floats, weight: Floats, total: Floats) -> Floats:
    value = np.asarray(design @ solution).ravel() - target
    mean = np.asarray(member.T @ (weight * value)).ravel() / total
    return np.asarray(value - member @ mean)


def _long_enough(matches: MatchedCalls, local: Floats, count: int) -> bool:
    calls = np.bincount(matches.trace, minlength=count)
    spans = [float(np.ptp(local[matches.trace == index])) for index in range(count) if calls[index]]
    return bool(min(calls[calls > 0]) >= FEWEST and min(spans) >= LONG)


def _components(matches: MatchedCalls, count: int) -> Int64s:
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    joined = sparse.csr_matrix((np.ones(len(matches.row)), (matches.trace, matches.call)), (count, len(matches)))
    return np.asarray(connected_components(joined @ joined.T, directed=False)[1], np.int64)


def _move_clock(trace: RankTrace, offset: float, drift: float) -> RankTrace:
    events = trace.events
    if drift:
        events = replace(events, begin=events.begin * (1.0 + drift), seconds=events.seconds * (1.0 + drift))
    return replace(trace, zero=trace.zero + float(offset), events=events)
