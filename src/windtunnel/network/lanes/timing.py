"""Arrival times of slices if no two lanes share a link: a plain evaluator of the rules in cpp/net/lanes.h.

Used for lanes without a formula, and in tests beside the engines. Work is proportional to slices.

Queue pairs: a lane between nodes over several connections is as many lanes, each with its part of every slice.

A collective's transfers: its lanes, slice by slice, in steps.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import EngineError
from windtunnel.engine.lanes import ALL, Lanes


def arrivals(lanes: Lanes, latency: Floats | None = None) -> list[list[float]]:
    """For each lane the seconds at which its slices arrive, `latency` [K] after they have left.

    EngineError if lanes wait for each other in a circle.
    """
    count = len(lanes)
    slices = slices_of(lanes).tolist()
    size, rate = lanes.slice.tolist(), lanes.rate.tolist()
    last = (lanes.bytes - (slices_of(lanes) - 1) * lanes.slice).tolist()
    extra = [0.0] * count if latency is None else latency.tolist()
    delay, begin, window = lanes.delay.tolist(), lanes.begin.tolist(), lanes.window.tolist()
    start, on, lead = lanes.dep_start.tolist(), lanes.dep_lane.tolist(), lanes.dep_lead.tolist()
    after: list[list[int]] = [[] for _ in range(count)]
    for lane in range(count):
        for d in range(start[lane], start[lane + 1]):
            after[on[d]].append(lane)
    there: list[list[float]] = [[] for _ in range(count)]
    free = [0.0] * count
    todo = list(range(count))
    queued = [True] * count
    while todo:
        lane = todo.pop()
        queued[lane] = False
        moved = False
        while (j := len(there[lane])) < slices[lane]:
            ready = begin[lane]
            waits = False
            for d in range(start[lane], start[lane + 1]):
                other = on[d]
                needed = slices[other] if lead[d] == ALL else min(slices[other], j + 1 - lead[d])
                if needed > len(there[other]):
                    waits = True
                    break
                if needed > 0:
                    ready = max(ready, there[other][needed - 1])
            if waits:
                break
            leave = max(ready + delay[lane], free[lane])
            if window[lane] and j >= window[lane]:
                leave = max(leave, there[lane][j - window[lane]])
            free[lane] = leave + (last[lane] if j == slices[lane] - 1 else size[lane]) / rate[lane]
            there[lane].append(free[lane] + extra[lane])
            moved = True
        if moved:
            for other in after[lane]:
                if not queued[other]:
                    queued[other] = True
                    todo.append(other)
    stuck = [lane for lane in range(count) if len(there[lane]) < slices[lane]]
    if stuck:
        raise EngineError(f"lane {stuck[0]} (endpoint {lanes.src[stuck[0]]} to {lanes.dst[stuck[0]]}) waits for itself in a circle")
    return there


def seconds(lanes: Lanes, latency: Floats | None = None) -> float:
    """When the last slice arrives."""
    return max((times[-1] for times in arrivals(lanes, latency) if times), default=0.0)


def slices_of(lanes: Lanes) -> Int64s:
    """[K] slices of each lane."""
    return -(-lanes.bytes // lanes.slice)


def allowed_slices(done: Int64s, slices: Int64s, start: Int64s, on: Int32s, lead: Int64s) -> Int64s:
    """[K] number of slices of each lane that may have been sent when `done` [K] of each have arrived."""
    none = np.int64(2**62)
    if not len(on):
        return np.full(len(done), none)
    complete = done[on] >= slices[on]
    room = np.where(complete, none, np.where(lead == ALL, 0, done[on] + np.where(lead == ALL, 0, lead)))
    limit = np.full(len(done), none)
    some = np.nonzero(np.diff(start))[0]
    limit[some] = np.minimum.reduceat(room, start[some])
    return limit


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


MOST = 100_000


@dataclass(frozen=True)
class TransferList:
    """T transfers in columns, numbered 0..T-1 in order of steps; the first of `total`.

    A transfer starts after those in `after[after_start[t]:after_start[t+1]]` have arrived, and after those of its lane before it
    have left. `step`: one more than the latest of either. `src`, `dst`: ranks of the call. `delay`, `rate`, `begin`: of its lane.
    """

    step: Int32s
    lane: Int32s
    src: Int32s
    dst: Int32s
    bytes: Int64s
    channel: Int32s
    after_start: Int64s
    after: Int32s
    delay: Floats
    rate: Floats
    begin: Floats
    total: int

    def __len__(self) -> int:
        return len(self.step)


def transfers(lanes: Lanes, channel: Int32s, ranks: Int32s | None = None, most: int = MOST) -> TransferList:
    """The first `most` transfers of lanes. `ranks`: endpoint of each rank, so that the listing can name ranks; left out: endpoints.

    EngineError if lanes wait for each other in a circle.
    """
    slices, count = slices_of(lanes), len(lanes)
    total = int(slices.sum())
    sent = np.zeros(count, dtype=np.int64)
    rows_lane, rows_slice, rows_step = [], [], []
    step = listed = 0
    while listed < min(total, most):
        go = np.nonzero((sent < slices) & (sent < allowed_slices(sent, slices, lanes.dep_start, lanes.dep_lane, lanes.dep_lead)))[0]
        if not len(go):
            stuck = int(np.nonzero(sent < slices)[0][0])
            raise EngineError(f"lane {stuck} ({lanes.src[stuck]} to {lanes.dst[stuck]}) waits for itself in a circle")
        go = go[: most - listed]
        rows_lane.append(go)
        rows_slice.append(sent[go].copy())
        rows_step.append(np.full(len(go), step, dtype=np.int32))
        sent[go] += 1
        listed += len(go)
        step += 1
    lane = np.concatenate([*rows_lane, np.zeros(0, dtype=np.int64)]).astype(np.int64)
    slice_ = np.concatenate([*rows_slice, np.zeros(0, dtype=np.int64)]).astype(np.int64)
    number = {(int(a), int(b)): t for t, (a, b) in enumerate(zip(lane, slice_, strict=True))}
    after_start, after = [0], []
    for a, j in zip(lane.tolist(), slice_.tolist(), strict=True):
        for d in range(int(lanes.dep_start[a]), int(lanes.dep_start[a + 1])):
            other, lead = int(lanes.dep_lane[d]), int(lanes.dep_lead[d])
            needed = int(slices[other]) if lead == ALL else min(int(slices[other]), j + 1 - lead)
            if needed > 0:
                after.append(number[other, needed - 1])
        after_start.append(len(after))
    names = _names(lanes, ranks)
    size = np.minimum(lanes.slice[lane], lanes.bytes[lane] - slice_ * lanes.slice[lane])
    steps = np.concatenate([*rows_step, np.zeros(0, dtype=np.int32)]).astype(np.int32)
    starts, befores = np.array(after_start, dtype=np.int64), np.array(after, dtype=np.int32)
    return TransferList(
        steps,
        lane.astype(np.int32),
        names[lanes.src[lane]],
        names[lanes.dst[lane]],
        size,
        channel[lane],
        starts,
        befores,
        lanes.delay[lane],
        lanes.rate[lane],
        lanes.begin[lane],
        total,
    )


def _names(lanes: Lanes, ranks: Int32s | None) -> Int32s:
    most = int(max(lanes.src.max(initial=0), lanes.dst.max(initial=0)))
    names = np.arange(most + 1, dtype=np.int32)
    if ranks is not None:
        inside = ranks <= most
        names[ranks[inside]] = np.nonzero(inside)[0].astype(np.int32)
    return names
