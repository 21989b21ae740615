"""A collective's transfers: its lanes, slice by slice, in steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.errors import EngineError
from windtunnel.engine.lanes import ALL, Lanes
from windtunnel.network.lanes.timing import allowed_slices, slices_of

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
