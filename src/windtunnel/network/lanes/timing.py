"""Arrival times of slices if no two lanes share a link: a plain evaluator of the rules in cpp/net/lanes.h.

Used for lanes without a formula, and in tests beside the engines. Work is proportional to slices.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
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
