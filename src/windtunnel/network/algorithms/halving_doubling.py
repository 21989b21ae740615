"""Recursive halving and doubling: reduce-scatter with partners at distances 1, 2, 4, …, with half of the bytes in each step, and
the reverse.

An all-reduce of any n: ranks beyond the largest power of two add their buffer to a partner first and get the result at the end
(Thakur, Rabenseifner and Gropp, 2005). The nearest partner comes first, so that most bytes stay inside a node.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import ALL, Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.workload.ops import Comm

_CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER)


def halving_doubling(call: CollectiveCall) -> Pattern:  # long: ends in a column a line
    """Lanes of an all-reduce, all-gather or reduce-scatter; each step one group. The latter two need a power of two."""
    n, comm = call.ranks, call.comm
    if comm not in _CALLS:
        raise SpecError("algorithm", "halving_doubling", "all_reduce, all_gather or reduce_scatter")
    bits = n.bit_length() - 1
    core = 1 << bits
    if comm != Comm.ALL_REDUCE and core < n:
        raise SpecError("gpus", n, "a power of two for halving_doubling", f"{core} works; an all_reduce takes any number.")
    chunk, _ = cut(call.size, core, float("inf"))
    steps: list[tuple[int, bool, int]] = []  # bit, adds, chunks sent
    if comm != Comm.ALL_GATHER:
        steps += [(bit, True, core >> (bit + 1)) for bit in range(bits)]
    if comm != Comm.REDUCE_SCATTER:
        steps += [(bit, False, core >> (bit + 1)) for bit in reversed(range(bits))]
    ranks, extra = np.arange(core), np.arange(core, n)
    sources = [ranks] * len(steps)
    targets = [ranks ^ (1 << bit) for bit, _, _ in steps]
    counts, adds = [count for _, _, count in steps], [add for _, add, _ in steps]
    if len(extra):
        sources, targets = [extra, *sources, extra - core], [extra - core, *targets, extra]
        counts, adds = [core, *counts, core], [True, *adds, False]
    width = [len(s) for s in sources]
    offset = np.concatenate([[0], np.cumsum(width)])
    waits, on = [], []
    for later in range(1, len(width)):
        for earlier in range(later):
            into = np.full(n, -1, dtype=np.int64)
            into[targets[earlier]] = np.arange(offset[earlier], offset[earlier + 1])
            arrived = into[sources[later]]
            have = arrived >= 0
            waits.append(np.arange(offset[later], offset[later + 1])[have])
            on.append(arrived[have])
    lanes = int(offset[-1])
    start, lane, lead = deps(lanes, np.concatenate([*waits, []]).astype(np.int64), np.concatenate([*on, []]).astype(np.int64), ALL)
    group = np.repeat(np.arange(len(width), dtype=np.int32), width)
    src, dst = np.concatenate(sources).astype(np.int32), np.concatenate(targets).astype(np.int32)
    bytes_ = np.array(counts, dtype=np.int64)[group] * chunk
    crossing = [bool((s // call.per_node != d // call.per_node).any()) for s, d in zip(sources, targets, strict=True)]

    def carries(lane: int, slice: int) -> Cargo:
        step, sender, receiver = int(group[lane]), int(src[lane]), int(dst[lane])
        if counts[step] == core:
            return range(core), adds[step]
        bit = (sender ^ receiver).bit_length() - 1
        low = (1 << bit) - 1
        # In the reduction a rank sends its partner's half; in the gather it sends its own chunks.
        wanted = receiver if adds[step] else sender
        return [p for p in range(core) if p & low == wanted & low and p >> bit & 1 == wanted >> bit & 1], adds[step]

    def seconds_alone(local: float, net: float) -> float:
        whole_ = core * chunk
        return sum(count * chunk / whole_ * (net if far else local) for count, far in zip(counts, crossing, strict=True))

    return Pattern(
        src,
        dst,
        bytes_,
        bytes_,
        fill_lanes(lanes, 0),
        group,
        fill_lanes(lanes, 0),
        np.full(lanes, call.size),
        start,
        lane,
        lead,
        len(width) - sum(crossing),
        sum(crossing),
        seconds_alone,
        core,
        carries,
        lambda piece: piece,
    )


class HalvingDoubling(CollectiveAlgorithm):
    def lower(self, call: CollectiveCall) -> Pattern:
        return halving_doubling(call)


HALVING_DOUBLING = HalvingDoubling()
