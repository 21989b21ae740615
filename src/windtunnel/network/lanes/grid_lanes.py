"""Lanes of a collective over parts of a machine's dimensions, stage by stage as `closed/grid.py` orders them.

Lanes have the rate of the links that their group has to itself and wait a hop before each slice, so alone they take the closed
form's time. A stage of a rank waits for all that the stage before it of its part, and the one before it in its dimension, bring it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.engine.lanes import ALL
from windtunnel.network.closed.dimensions import Dimension
from windtunnel.network.closed.grid import MESSAGES, GridCall, GridStage
from windtunnel.network.grids.spans import GridSpan
from windtunnel.workload.ops import Comm


class GridLanes(NamedTuple):
    """K lanes of one group in columns. Ranks are numbered along the spans, the first one fastest. `back` [K]: against the numbers
    of a ring or line; `dimension` [K]: along which, -1 for a message that passes several. `waits`: (lane, lane that it waits
    for, lead)."""

    src: Int64s
    dst: Int64s
    slices: Int64s
    slice: Floats
    rate: Floats
    delay: Floats
    back: Bools
    dimension: Int64s
    stage: Int64s
    waits: tuple[Int64s, Int64s, Int64s]


class _Part(NamedTuple):
    """A stage's lanes; `slice` is in shares of the stage's bytes."""

    src: Int64s
    dst: Int64s
    slices: Int64s
    slice: Floats
    back: Bools
    hops: Int64s
    waits: tuple[Int64s, Int64s, Int64s]


_NONE = np.zeros(0, np.int64)


def lanes_on_grid(call: GridCall, size: float) -> GridLanes:
    """Lanes of a collective of `size` bytes."""
    spans, stages = call.grid.spans, call.schedule.stages
    before = call.schedule.before()
    followed = {in_dimension for _, in_dimension in before}
    parts = [_stage_lanes(call, stage, at in followed) for at, stage in enumerate(stages)]
    first = np.cumsum([0, *(len(part.src) for part in parts)])
    waits = [
        tuple(column + shift for column, shift in zip(part.waits, (at, at, 0), strict=True))
        for part, at in zip(parts, first, strict=False)
    ]
    for at, earlier in enumerate(before):
        for other in sorted({one for one in earlier if one is not None}):
            lane, on = _join_into(parts[at].src, parts[other].dst)
            waits.append((lane + first[at], on + first[other], np.full(len(lane), ALL, np.int64)))
    columns = [_speeds(call, stage, part) for stage, part in zip(stages, parts, strict=True)]
    counts = [len(part.src) for part in parts]
    return GridLanes(
        np.concatenate([part.src for part in parts]),
        np.concatenate([part.dst for part in parts]),
        np.concatenate([part.slices for part in parts]),
        np.concatenate([part.slice * stage.share * size for part, stage in zip(parts, stages, strict=True)]),
        np.concatenate([rate for rate, _ in columns]),
        np.concatenate([delay for _, delay in columns]),
        np.concatenate([part.back for part in parts]),
        np.repeat([spans[stage.span].dimension for stage in stages], counts),
        np.repeat(np.arange(len(stages)), counts),
        (np.concatenate([w[0] for w in waits]), np.concatenate([w[1] for w in waits]), np.concatenate([w[2] for w in waits])),
    )


def message_lanes(call: GridCall, size: float, ranks: int) -> GridLanes:
    """Lanes of messages from each of `ranks` ranks to the next, or of a collective between two."""
    comm = call.comm
    around = ranks > 2 or comm is not Comm.SEND_RECV
    src = np.arange(ranks if around else 1)
    rounds, share = MESSAGES.get(comm, (1, 1.0))
    count = len(src)
    again = src if rounds > 1 else _NONE
    return GridLanes(
        src,
        (src + 1) % ranks,
        np.full(count, rounds),
        np.full(count, share * size),
        np.full(count, call.rate),
        np.full(count, call.hop),
        np.zeros(count, np.bool_),
        np.full(count, -1),
        np.zeros(count, np.int64),
        (again, (again - 1) % ranks, np.ones(len(again), np.int64)),
    )


def _join_into(src: Int64s, dst: Int64s) -> tuple[Int64s, Int64s]:
    """(lane, other) of each lane from a rank and each other lane to that rank."""
    order = np.argsort(dst, kind="stable")
    start = np.searchsorted(dst[order], src, "left")
    count = np.searchsorted(dst[order], src, "right") - start
    lane = np.repeat(np.arange(len(src)), count)
    place = np.arange(len(lane)) - np.repeat(np.cumsum(count) - count, count)
    return lane, order[np.repeat(start, count) + place]


def _speeds(call: GridCall, stage: GridStage, part: _Part) -> tuple[Floats, Floats]:
    """(rate, delay) of a stage's lanes."""
    along, span = call.dimensions[stage.span], call.grid.spans[stage.span]
    each = along.bandwidth / {"both_ways": 2, "fully_connected": max(1, span.size - 1)}.get(along.kind, 1)
    rate: Floats = np.full(len(part.src), each)
    if call.comm is Comm.ALL_TO_ALL:
        free = Dimension(along.kind, along.size, along.bandwidth, 0.0).exchange(1.0)
        rate = part.slice / free
    delay: Floats = (part.hops * along.latency).astype(np.float64)
    return rate, delay


def _stage_lanes(call: GridCall, stage: GridStage, followed: bool) -> _Part:
    """The lanes of a stage; `followed`: by another one in its dimension."""
    spans = call.grid.spans
    span = spans[stage.span]
    width = math.prod(one.size for one in spans[: stage.span])
    rank = np.arange(math.prod(one.size for one in spans))
    digit = rank // width % span.size
    if call.comm is Comm.ALL_TO_ALL:
        return _exchange_shares(span, rank, digit, width)
    if span.kind == "ring":
        return _send_around(span, rank, digit, width)
    if span.kind == "line":
        line = _pass_along(span, rank, digit, width, stage.reduces)
        return _answer(line) if followed and span.size > 2 else line
    if span.kind == "switch":
        return _double(span, rank, digit, width, stage.reduces)
    return _send_directly(span, rank, digit, width)


def _send_around(span: GridSpan, rank: Int64s, digit: Int64s, width: int) -> _Part:
    """Halves of shares either way round a ring; each leaves when the one of the pair before has come."""
    n, count = span.size, len(rank)
    ahead = rank + ((digit + 1) % n - digit) * width
    behind = rank + ((digit - 1) % n - digit) * width
    both = np.arange(2 * count)
    return _Part(
        np.concatenate([rank, rank]),
        np.concatenate([ahead, behind]),
        np.full(2 * count, n - 1),
        np.full(2 * count, 0.5 / n),
        np.repeat([False, True], count),
        np.ones(2 * count, np.int64),
        (both, np.concatenate([behind, count + ahead]), np.full(2 * count, 2)),
    )


def _pass_along(span: GridSpan, rank: Int64s, digit: Int64s, width: int, reduces: bool) -> _Part:
    """Shares along a line, both ways: gathered ones pass on what comes from behind after the own one; sums for the far end go
    first, and the last one is for the neighbour."""
    n, count = span.size, len(rank)
    forward, backward = digit < n - 1, digit > 0
    number = np.full((2, count), -1)
    number[0, forward] = np.arange(int(forward.sum()))
    number[1, backward] = int(forward.sum()) + np.arange(int(backward.sum()))
    passed = np.concatenate([digit[forward] + 1, n - digit[backward]])
    if reduces:
        passed = n - passed
    later, earlier = forward & (digit > 0), backward & (digit < n - 1)
    lane = np.concatenate([number[0, later], number[1, earlier]])
    on = np.concatenate([number[0, rank[later] - width], number[1, rank[earlier] + width]])
    src = np.concatenate([rank[forward], rank[backward]])
    return _Part(
        src,
        np.concatenate([rank[forward] + width, rank[backward] - width]),
        passed,
        np.full(len(src), 1.0 / n),
        np.repeat([False, True], [int(forward.sum()), int(backward.sum())]),
        np.ones(len(src), np.int64),
        (lane, on, np.full(len(lane), 0 if reduces else 1)),
    )


def _answer(line: _Part) -> _Part:
    """The line with a byte back for each lane, without a hop's delay: the middle has all before it has passed all on, and what it
    sends next waits for that."""
    count = len(line.src)
    lane, on, lead = line.waits
    own = np.arange(count)
    return _Part(
        np.concatenate([line.src, line.dst]),
        np.concatenate([line.dst, line.src]),
        np.concatenate([line.slices, np.ones(count, np.int64)]),
        np.concatenate([line.slice, np.zeros(count)]),
        np.concatenate([line.back, ~line.back]),
        np.concatenate([line.hops, np.zeros(count, np.int64)]),
        (np.concatenate([lane, count + own]), np.concatenate([on, own]), np.concatenate([lead, np.full(count, ALL)])),
    )


def _send_directly(span: GridSpan, rank: Int64s, digit: Int64s, width: int) -> _Part:
    """A share to each of the others, over a link of its own."""
    n = span.size
    step = np.repeat(np.arange(1, n), len(rank))
    src, at = np.tile(rank, n - 1), np.tile(digit, n - 1)
    count = len(src)
    return _Part(
        src,
        src + ((at + step) % n - at) * width,
        np.ones(count, np.int64),
        np.full(count, 1.0 / n),
        np.zeros(count, np.bool_),
        np.ones(count, np.int64),
        (_NONE, _NONE, _NONE),
    )


def _double(span: GridSpan, rank: Int64s, digit: Int64s, width: int, reduces: bool) -> _Part:
    """Rounds of twice as many shares each, to ranks twice as far, as Bruck's algorithm for any number of ranks; sums the other way
    round."""
    n, count = span.size, len(rank)
    far = [2**k for k in range(math.ceil(math.log2(n)))]
    if reduces:
        far = far[::-1]
    jumps = np.repeat(far, count)
    src, at = np.tile(rank, len(far)), np.tile(digit, len(far))
    lane = np.arange(count, count * len(far))
    before = np.repeat(far[:-1], count)
    came = src[lane] + ((at[lane] - before) % n - at[lane]) * width
    return _Part(
        src,
        src + ((at + jumps) % n - at) * width,
        np.ones(len(src), np.int64),
        np.minimum(jumps, n - jumps) / n,
        np.zeros(len(src), np.bool_),
        np.ones(len(src), np.int64),
        (lane, lane // count * count - count + came, np.full(len(lane), ALL)),
    )


def _exchange_shares(span: GridSpan, rank: Int64s, digit: Int64s, width: int) -> _Part:
    """A share from each to each of the others, all at once; half of what has equal ways round a ring goes either way."""
    n = span.size
    step = np.repeat(np.arange(1, n), len(rank))
    src, at = np.tile(rank, n - 1), np.tile(digit, n - 1)
    to = (at + step) % n
    share = np.full(len(src), 1.0 / n)
    back, hops = to < at, np.abs(to - at)
    if span.kind == "ring":
        back, hops = 2 * step > n, np.minimum(step, n - step)
        opposite = np.flatnonzero(2 * step == n)
        share[opposite] /= 2
        src, at, to = (np.concatenate([one, one[opposite]]) for one in (src, at, to))
        share, hops = np.concatenate([share, share[opposite]]), np.concatenate([hops, hops[opposite]])
        back = np.concatenate([back, np.ones(len(opposite), np.bool_)])
    elif span.kind != "line":
        hops = np.ones(len(src), np.int64)
    return _Part(src, src + (to - at) * width, np.ones(len(src), np.int64), share, back, hops, (_NONE, _NONE, _NONE))
