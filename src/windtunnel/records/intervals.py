"""Sets of intervals on a line, as two sorted arrays of begins and ends that do not overlap."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats

Intervals = tuple[Floats, Floats]


def union(begin: Floats, end: Floats) -> Intervals:
    """The union of intervals in any order; touching ones become one. Empty and reversed intervals count as their begin."""
    order = np.argsort(begin, kind="stable")
    starts, ends = begin[order], np.maximum.accumulate(np.maximum(begin, end)[order]) if len(begin) else end
    fresh = np.ones(len(starts), bool)
    fresh[1:] = starts[1:] > ends[:-1]
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(starts) - 1) if len(starts) else np.empty(0, np.int64)
    return starts[fresh], ends[last]


def length(intervals: Intervals) -> float:
    """The length of disjoint intervals."""
    return float(np.sum(intervals[1] - intervals[0]))


def seconds_within(intervals: Intervals, begin: Floats, end: Floats) -> Floats:
    """How much of each [begin, end) lies in the intervals [N]."""
    return _before(intervals, end) - _before(intervals, begin)


def overlap(one: Intervals, other: Intervals) -> float:
    """The length that two sets share."""
    return float(np.sum(seconds_within(one, other[0], other[1])))


def gaps_between(intervals: Intervals, begin: float, end: float) -> Intervals:
    """The gaps of [begin, end) that the intervals leave."""
    starts, ends = np.clip(intervals[0], begin, end), np.clip(intervals[1], begin, end)
    left, right = np.append(begin, ends), np.append(starts, end)
    gap = right > left
    return left[gap], right[gap]


def cut(intervals: Intervals, begin: float, end: float) -> Intervals:
    """The part inside [begin, end)."""
    starts, ends = np.clip(intervals[0], begin, end), np.clip(intervals[1], begin, end)
    real = ends > starts
    return starts[real], ends[real]


def _before(intervals: Intervals, at: Floats) -> Floats:
    """The length of the intervals that lies before each time."""
    starts, ends = intervals
    if not len(starts):
        return np.zeros(len(at))
    summed = np.concatenate(([0.0], np.cumsum(ends - starts)))
    number = np.searchsorted(starts, at, side="right")
    inside = np.maximum(0.0, ends[np.maximum(number - 1, 0)] - at) * (number > 0)
    return np.asarray(summed[number] - inside, np.float64)
