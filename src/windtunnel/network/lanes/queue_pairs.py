"""Queue pairs: a lane between nodes over several connections is as many lanes, each with its part of every slice."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Int32s, Int64s
from windtunnel.engine.lanes import Lanes
from windtunnel.network.lanes.timing import slices_of


def split(lanes: Lanes, between: Bools, pairs: int) -> tuple[Lanes, Int32s, Int32s]:
    """(lanes, the old lane of each, its number among that one's) with each lane of `between` [K] cut into `pairs` equal ones.

    A lane that waited for an old lane waits for all of its parts. Each part of a slice takes as long as the slice at full rate.
    """
    count = len(lanes)
    copies = np.where(between & (lanes.slice >= pairs), pairs, 1).astype(np.int64)
    if pairs == 1 or not between.any():
        return lanes, np.arange(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
    first = np.concatenate([[0], np.cumsum(copies)])
    old = np.repeat(np.arange(count), copies)
    part = np.arange(len(old)) - first[old]
    slices, slice_ = slices_of(lanes), -(-lanes.slice // copies)
    last = -(-(lanes.bytes - (slices - 1) * lanes.slice) // copies)
    bytes_ = (slices - 1) * slice_ + last
    waits: Int64s = np.diff(lanes.dep_start)
    # Each dependency of an old lane becomes one on every part, for every part of the lane that waits.
    each = np.repeat(lanes.dep_start[:-1][old], waits[old]) + index_within(waits[old])
    on = lanes.dep_lane[each]
    parts = copies[on]
    dep_lane = np.repeat(first[on], parts) + index_within(parts)
    total = np.bincount(np.repeat(np.arange(len(old)), waits[old]), weights=parts, minlength=len(old)).astype(np.int64)
    lanes_of_pairs = Lanes(
        lanes.src[old],
        lanes.dst[old],
        bytes_[old],
        slice_[old],
        lanes.window[old],
        lanes.delay[old],
        lanes.rate[old] / copies[old],
        lanes.begin[old],
        lanes.group[old],
        np.concatenate([[0], np.cumsum(total)]).astype(np.int64),
        dep_lane.astype(np.int32),
        np.repeat(lanes.dep_lead[each], parts),
    )
    return lanes_of_pairs, old.astype(np.int32), part.astype(np.int32)


def index_within(counts: Int64s) -> Int64s:
    """0..c-1 for each count c, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(counts) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)
