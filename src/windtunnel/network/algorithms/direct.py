"""Direct: every rank exchanges with every other one at once, without relays. One step (two for an all-reduce)."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.workload.ops import Comm

MOST_RANKS = 256


def direct(call: CollectiveCall) -> Pattern:  # long: ends in a column a line
    """All-to-all, all-gather, reduce-scatter, or an all-reduce of both: n(n - 1) lanes a step, rank r first to rank r + 1."""
    if call.comm not in (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL):
        raise SpecError("algorithm", "direct", "all_reduce, all_gather, reduce_scatter or all_to_all")
    n = call.ranks
    if call.comm == Comm.ALL_REDUCE and n > MOST_RANKS:
        raise SpecError("algorithm", "direct", f"at most {MOST_RANKS} ranks for an all_reduce", "Each result waits for n - 1 sums.")
    shift = np.arange(1, n)
    src = np.repeat(np.arange(n), n - 1)
    dst = (np.arange(n)[:, None] + shift).ravel() % n
    chunk, slices = cut(call.size, n, call.step)
    steps = 2 if call.comm == Comm.ALL_REDUCE else 1
    each = len(src)
    lanes = steps * each
    start, lane, lead = np.zeros(lanes + 1, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    if steps == 2:
        into = np.argsort(dst, kind="stable").reshape(n, n - 1)  # lanes that end at each rank
        waiting = np.repeat(np.arange(each, lanes), n - 1)
        start, lane, lead = deps(lanes, waiting, np.repeat(into, n - 1, axis=0).ravel(), 0)
    source: Int32s = np.tile(src, steps).astype(np.int32)
    target: Int32s = np.tile(dst, steps).astype(np.int32)
    bytes_ = np.full(lanes, chunk * slices, dtype=np.int64)
    local = call.node_of(source) == call.node_of(target)
    # All lanes of a rank share its port evenly, in units of the rank's buffer.
    ports = np.where(local, min(n, call.per_node) - 1, n - min(n, call.per_node))
    pace = call.size / np.maximum(1, ports)
    gather = np.repeat([call.comm == Comm.ALL_GATHER] if steps == 1 else [False, True], each)

    def carries(lane: int, slice: int) -> Cargo:
        s, d = int(source[lane]), int(target[lane])
        if call.comm == Comm.ALL_TO_ALL:
            return ((s * n + d) * slices + slice,), False
        return ((s if gather[lane] else d) * slices + slice,), not gather[lane]

    def seconds_alone(local: float, net: float) -> float:
        part = chunk * slices / call.size if call.size else 0.0
        here = min(n, call.per_node)
        once = max(local * (here - 1), net * (n - here)) * part
        return once * (1.0 if steps == 1 else 1.0 + 1.0 / slices)

    all_to_all = call.comm == Comm.ALL_TO_ALL
    return Pattern(
        source,
        target,
        bytes_,
        np.full(lanes, chunk, dtype=np.int64),
        fill_lanes(lanes, 8),
        fill_lanes(lanes, 0) if steps == 2 else np.arange(lanes, dtype=np.int32),
        fill_lanes(lanes, 0),
        pace,
        start,
        lane,
        lead,
        steps if call.nodes == 1 else 0,
        steps if call.nodes > 1 else 0,
        seconds_alone,
        (n * n if all_to_all else n) * slices,
        carries,
        (lambda piece: piece // slices // n) if all_to_all else (lambda piece: piece // slices),
        (lambda piece: piece // slices % n) if all_to_all else None,
    )


class DirectAlgorithm(CollectiveAlgorithm):
    def lower(self, call: CollectiveCall) -> Pattern:
        return direct(call)


DIRECT = DirectAlgorithm()
