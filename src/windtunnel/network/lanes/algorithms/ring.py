"""Rings of NCCL: per channel a cycle through all ranks, node after node, that leaves a node at the channel's NIC.

Rank p of the cycle sends a stream of chunks to rank p + 1 and may send chunk k once chunk k - 1 came in from rank p - 1.
All-reduce: 2(n-1) chunks per loop, of which the first n - 1 are partial sums; all-gather and reduce-scatter n - 1; broadcast and
reduce are a chain. (NCCL 2.30.7, `src/device/all_reduce.h`, `src/graph/connect.cc`.)

A chunk of Simple is four steps of the buffer, of other protocols one; a shorter message is split evenly. NCCL sends a Simple
chunk in two slices. Measured rings do not hide their hops behind the second slice (the closed form's fit needs all hops),
so a slice of a lane is a chunk.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.network.lanes.algorithms.pattern import Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.network.nccl import constants as c
from windtunnel.workload.ops import Comm

_STEPS = 8
_LEAST = 512  # bytes
_PASSED = 4096.0  # bytes
_CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.BROADCAST, Comm.REDUCE)


def ring(call: CollectiveCall) -> Pattern:
    """Lanes of a ring all-reduce, all-gather or reduce-scatter, n for each channel; of a broadcast or reduce n - 1."""
    if call.comm not in _CALLS:
        raise SpecError("algorithm", "ring", "all_reduce, all_gather, reduce_scatter, broadcast or reduce")
    if call.comm in (Comm.BROADCAST, Comm.REDUCE):
        return chain(call, reduces=call.comm == Comm.REDUCE)
    n, channels = call.ranks, call.channels
    order = call.orders((call.exits() + 1) % call.per_node, back=True)
    together = 4 if call.protocol == c.SIMPLE else 1
    chunk, loops = cut(call.size, channels * n, together * call.step)
    rounds = 2 if call.comm == Comm.ALL_REDUCE else 1
    turn = rounds * (n - 1)
    lanes, slices = channels * n, loops * turn
    position = np.tile(np.arange(n), channels)
    before = np.arange(lanes) - position + (position - 1) % n
    bytes_ = np.full(lanes, slices * chunk, dtype=np.int64)
    start, lane, lead = deps(lanes, np.arange(lanes), before, 1)
    late = 1 if call.comm == Comm.REDUCE_SCATTER else 0

    def carries(lane: int, slice: int) -> Cargo:
        channel, p = divmod(lane, n)
        loop, t = divmod(slice, turn)
        piece = (channel * loops + loop) * n + (p - t - late) % n
        return (piece,), call.comm != Comm.ALL_GATHER and t < n - 1

    src = order.ravel()
    dst = np.roll(order, -1, axis=1).ravel()
    crossing = call.node_of(src[:n]) != call.node_of(dst[:n])
    net = _most(crossing, slices)
    return Pattern(
        src,
        dst,
        bytes_,
        np.full(lanes, chunk, dtype=np.int64),
        fill_lanes(lanes, max(1, _STEPS // together)),
        fill_lanes(lanes, 0),
        np.repeat(np.arange(channels, dtype=np.int32), n),
        bytes_.astype(np.float64),
        start,
        lane,
        lead,
        slices - net,
        net,
        lambda local, far: max(local, far),
        channels * loops * n,
        carries,
        lambda piece: int(order[piece // n // loops, piece % n]),
        one_speed=True,
    )


def chain(call: CollectiveCall, reduces: bool) -> Pattern:
    """Broadcast from `call.root` along each channel's ring, or the reduction to it in the opposite direction."""
    n, channels = call.ranks, call.channels
    order = call.orders((call.exits() + 1) % call.per_node, back=True)
    at = np.argmax(order == call.root, axis=1)
    order = np.take_along_axis(order, (at[:, None] + np.arange(n)) % n, axis=1)
    if reduces:
        order = np.roll(order, -1, axis=1)
    # At least n chunks, so that a short message also uses all links. A rank passes on what its threads read at a time, where lines
    # have flags, or a packet; 64 n chunks are enough, since they fill the chain in a sixty-fourth of its time.
    share = call.size / channels
    passed = max(c.SWEEPS.get(call.protocol, _PASSED), share / (64 * n))
    chunk, slices = cut(call.size, channels, min(call.step, passed, max(_LEAST, share / n)))
    lanes = channels * (n - 1)
    position = np.tile(np.arange(n - 1), channels)
    later = np.nonzero(position)[0]
    start, lane, lead = deps(lanes, later, later - 1, 0)
    bytes_ = np.full(lanes, slices * chunk, dtype=np.int64)
    src, dst = order[:, :-1].ravel(), order[:, 1:].ravel()
    net = int((call.node_of(src) != call.node_of(dst)).reshape(channels, n - 1).sum(axis=1).max())
    return Pattern(
        src,
        dst,
        bytes_,
        np.full(lanes, chunk, dtype=np.int64),
        fill_lanes(lanes, _STEPS),
        fill_lanes(lanes, 0),
        np.repeat(np.arange(channels, dtype=np.int32), n - 1),
        bytes_.astype(np.float64),
        start,
        lane,
        lead,
        n - 1 - net,
        net,
        lambda local, far: max(local, far) * (1.0 + (n - 2) / slices),
        channels * slices,
        lambda lane, slice: ((lane // (n - 1) * slices + slice,), reduces),
        lambda piece: call.root,
        one_speed=True,
    )


def _most(crossing: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], slices: int) -> int:
    """Most lanes between nodes among `slices` that follow each other around the ring."""
    turns, rest = divmod(slices, len(crossing))
    seen = np.concatenate([[0], np.cumsum(np.tile(crossing, 2))])
    return int(turns * crossing.sum() + (seen[rest:] - seen[: len(seen) - rest]).max())
