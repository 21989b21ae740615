"""Sends and receives as NCCL's point-to-point schedule orders them: all-to-all, and single messages.

Rounds walk groups of eight ranks by the quadratic sequence 0, 1, 3, 6, 10, …, and within two groups rank by rank; up to eight peers
share a channel's batch, and as many batches run as there are channels for them (`ncclP2pSchedule` in `init.cc`, `enqueue.cc` of
NCCL 2.30.7). A send waits for the receive `at_once` rounds before it, which its rank posted together with that round's send.
"""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.lanes.algorithms.pattern import ALL, COPY, Cargo, CollectiveCall, Pattern, cut, fill_lanes
from windtunnel.workload.ops import Comm

_KIB = 1024


def schedule(ranks: int, per_node: int) -> tuple[int, Int64s, Int64s]:
    """(g, groups ahead, places ahead) of each round, the first of which is a rank itself: rank (G, l) sends to (G + D, l + d)
    and receives from (G - D, l - d)."""
    nodes = -(-ranks // per_node)
    size = ranks if nodes == 1 else math.gcd(8, per_node, ranks)
    groups = ranks // size
    turns, ahead, offsets = 1 << (groups - 1).bit_length(), 0, []
    for k in range(1, turns + 1):
        if ahead < groups:
            offsets.append(ahead)
        ahead = (ahead + k) & (turns - 1)
    return size, np.repeat(np.array(offsets, dtype=np.int64), size), np.tile(np.arange(size, dtype=np.int64), groups)


def p2p_slice(nbytes: float, far: bool, nvlink: bool = True) -> float:
    """Bytes of a slice: a step, a quarter or half of it where a short message crosses the network."""
    step = (128 if far or not nvlink else 512) * _KIB
    if far and nbytes < 8 * step:
        return step / (4 if nbytes < step else 2)
    return float(step)


def all_to_all(call: CollectiveCall) -> Pattern:  # long: ends in a column a line
    """n(n - 1) lanes, rank by rank and round by round."""
    if call.comm == Comm.SEND_RECV:
        return send_recv(call)
    if call.comm in (Comm.GATHER, Comm.SCATTER):
        return rooted_pattern(call)
    if call.comm != Comm.ALL_TO_ALL:
        raise SpecError("algorithm", "p2p", "all_to_all, send_recv, gather or scatter")
    n = call.ranks
    size, groups, places = schedule(n, call.per_node)
    count, rank = n // size, np.arange(n, dtype=np.int64)[:, None]
    ahead, place = groups[1:], places[1:]
    dst = (rank // size + ahead) % count * size + (rank % size + place) % size
    src = np.repeat(np.arange(n, dtype=np.int32), n - 1)
    dst = dst.astype(np.int32).ravel()
    lanes, rounds, at_once = n * (n - 1), n - 1, max(1, call.at_once)
    start, lane, lead = np.zeros(lanes + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    if rounds > at_once:
        late = rounds - at_once
        came = (rank // size - ahead[:late]) % count * size + (rank % size - place[:late]) % size
        lane = (came * rounds + np.arange(late)).astype(np.int32).ravel()
        counts = np.zeros(rounds, dtype=np.int64)
        counts[at_once:] = 1
        np.cumsum(np.tile(counts, n), out=start[1:])
        lead = np.full(len(lane), ALL, dtype=np.int64)
    block, _ = cut(call.size, n, math.inf)
    local = call.node_of(src) == call.node_of(dst)
    slices = np.where(local, min(block, int(p2p_slice(block, False))), min(block, int(p2p_slice(block, True))))
    near, far = min(n, call.per_node) - 1, n - min(n, call.per_node)
    pace = np.where(local, near / max(1, min(at_once, near)), far / max(1, min(at_once, far))) * block
    # Rank 0 represents all ranks: number of sends and receives of each round's batch that stay in the node.
    inside = local[:rounds]
    batches = [inside[i : i + at_once] for i in range(0, rounds, at_once)]

    def seconds_alone(local: float, net: float) -> float:
        each_local, each_net = local * min(at_once, near) / max(1, near), net * min(at_once, far) / max(1, far)
        return sum(max(each_local if batch.any() else 0.0, each_net if not batch.all() else 0.0) for batch in batches)

    def carries(lane: int, slice: int) -> Cargo:
        last = slice == -(-block // int(slices[lane])) - 1  # a block has arrived when its last slice has
        return ((int(src[lane]) * n + int(dst[lane]),) if last else ()), False

    crossing = sum(1 for batch in batches if not batch.all())
    return Pattern(
        src,
        dst,
        np.full(lanes, block, dtype=np.int64),
        slices.astype(np.int64),
        fill_lanes(lanes, 8),
        np.arange(lanes, dtype=np.int32),
        fill_lanes(lanes, 0),
        pace,
        start,
        lane,
        lead,
        len(batches) - crossing,
        crossing,
        seconds_alone,
        n * n,
        carries,
        lambda piece: piece // n,
        lambda piece: piece % n,
    )


def send_recv(call: CollectiveCall) -> Pattern:
    """A message of `size` bytes: from rank 0 to rank 1 of a pair, from every rank to the next one of more."""
    n = call.ranks
    src = np.arange(n if n > 2 else 1, dtype=np.int32)
    dst = ((src + 1) % n).astype(np.int32)
    lanes = len(src)
    size = max(1, math.ceil(call.size))
    far = call.node_of(src) != call.node_of(dst)
    slices = np.where(far, int(p2p_slice(size, True)), int(p2p_slice(size, False)))
    return Pattern(
        src,
        dst,
        np.full(lanes, size, dtype=np.int64),
        np.minimum(size, slices).astype(np.int64),
        fill_lanes(lanes, 8),
        np.arange(lanes, dtype=np.int32),
        fill_lanes(lanes, 0),
        np.full(lanes, float(size)),
        np.zeros(lanes + 1, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        np.zeros(0, dtype=np.int64),
        0 if far.any() else 1,
        1 if far.any() else 0,
        lambda local, net: max(local, net) if far.any() else local,
        lanes,
        lambda lane, slice: ((lane,) if slice == -(-size // int(slices[lane])) - 1 else (), False),
        lambda piece: piece,
        lambda piece: (piece + 1) % n,
    )


def rooted_pattern(call: CollectiveCall) -> Pattern:
    """Gather to `call.root` or scatter from it: n - 1 messages of size / n, all posted at once."""
    n, gathers = call.ranks, call.comm == Comm.GATHER
    other = (call.root + np.arange(1, n, dtype=np.int32)) % n
    root = np.full(n - 1, call.root, dtype=np.int32)
    src, dst = (other, root) if gathers else (root, other)
    block, _ = cut(call.size, n, math.inf)
    local = call.node_of(src) == call.node_of(dst)
    slices = np.where(local, min(block, int(p2p_slice(block, False))), min(block, int(p2p_slice(block, True)))).astype(np.int64)

    def carries(lane: int, slice: int) -> Cargo:
        return ((int(other[lane]),) if slice == -(-block // int(slices[lane])) - 1 else ()), COPY

    return Pattern(
        src,
        dst,
        np.full(n - 1, block, dtype=np.int64),
        slices,
        fill_lanes(n - 1, 8),
        np.arange(n - 1, dtype=np.int32),
        fill_lanes(n - 1, 0),
        np.full(n - 1, float(block)),
        np.zeros(n, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        np.zeros(0, dtype=np.int64),
        0 if call.nodes > 1 else 1,
        1 if call.nodes > 1 else 0,
        max,
        n,
        carries,
        (lambda piece: piece) if gathers else (lambda piece: call.root),
        (lambda piece: call.root) if gathers else (lambda piece: piece),
    )
