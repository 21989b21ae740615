"""Bruck's all-to-all: log2 n rounds; in round k a rank passes on, 2^k ranks ahead, all blocks whose distance has bit k.

Each block travels over as many ranks as its distance has bits, so a rank sends about n/2 blocks a round: few messages, more bytes
(Bruck et al., 1997).
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import ALL, Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.workload.ops import Comm


def bruck(call: CollectiveCall) -> Pattern:
    """Lanes of an all-to-all: n for each round."""
    if call.comm != Comm.ALL_TO_ALL:
        raise SpecError("algorithm", "bruck", "all_to_all")
    n = call.ranks
    rounds = (n - 1).bit_length()
    block, _ = cut(call.size, n, float("inf"))
    moved = np.array([sum(1 for d in range(n) if d >> k & 1) for k in range(rounds)], dtype=np.int64)
    turn = np.repeat(np.arange(rounds), n)
    rank = np.tile(np.arange(n), rounds)
    lanes = rounds * n
    waits, on = [], []
    for earlier in range(rounds - 1):
        late = np.nonzero(turn > earlier)[0]
        waits.append(late)
        on.append(earlier * n + (rank[late] - (1 << earlier)) % n)
    start, lane, lead = deps(lanes, np.concatenate([*waits, []]).astype(np.int64), np.concatenate([*on, []]).astype(np.int64), ALL)
    bytes_ = moved[turn] * block
    src, dst = rank.astype(np.int32), ((rank + (1 << turn)) % n).astype(np.int32)
    node = call.node_of(src) != call.node_of(dst)
    crossing = [bool(node[k * n : (k + 1) * n].any()) for k in range(rounds)]

    def carries(lane: int, slice: int) -> Cargo:
        k, r = divmod(lane, n)
        # A block of distance d has gone the low bits of d before this round.
        return [(r - (d & ((1 << k) - 1))) % n * n + (r - (d & ((1 << k) - 1)) + d) % n for d in range(n) if d >> k & 1], False

    def seconds_alone(local: float, net: float) -> float:
        return sum(int(m) * block / max(1.0, call.size) * (net if far else local) for m, far in zip(moved, crossing, strict=True))

    return Pattern(
        src,
        dst,
        bytes_,
        bytes_,
        fill_lanes(lanes, 0),
        turn.astype(np.int32),
        fill_lanes(lanes, 0),
        np.full(lanes, call.size),
        start,
        lane,
        lead,
        rounds - sum(crossing),
        sum(crossing),
        seconds_alone,
        n * n,
        carries,
        lambda piece: piece // n,
        lambda piece: piece % n,
    )


class Bruck(CollectiveAlgorithm):
    def lower(self, call: CollectiveCall) -> Pattern:
        return bruck(call)


BRUCK = Bruck()
