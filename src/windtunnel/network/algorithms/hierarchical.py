"""Hierarchical over dimensions: reduce-scatter from the innermost dimension out, all-gather back, in chunks to keep all busy.

A chunk is reduce-scattered in one dimension after the other, each on the part that the one before left, and all-gathered in
reverse order; inside a dimension by a ring. While one chunk is in the second dimension the next one is in the first. With
`speeds` each chunk takes the order that minimises the load of the busiest dimension, given the loads of earlier chunks (Themis,
Rashidi et al., ISCA 2022); without, the innermost dimension comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import ALL, Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.network.closed.dimensions import themis
from windtunnel.workload.ops import Comm

_CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER)


def orders(dims: tuple[int, ...], speeds: tuple[float, ...], chunks: int) -> list[tuple[int, ...]]:
    """Order of dimensions in which each chunk is reduced: by Themis with `speeds`; without, always innermost first."""
    if not speeds:
        return [tuple(range(len(dims)))] * chunks

    def work(order: Sequence[int]) -> Iterator[tuple[int, float]]:
        left = 1.0
        for dim in order:
            yield dim, left * (dims[dim] - 1) / dims[dim] / speeds[dim]
            left /= dims[dim]

    return themis(len(dims), chunks, work)


class ChunkStage(NamedTuple):
    """A chunk's pass through a dimension: reducing (`adds`) or gathering, after the dimensions `done` and before those `left`."""

    chunk: int
    dim: int
    adds: bool
    done: tuple[int, ...]
    left: tuple[int, ...]


def _stages(comm: Comm, dims: tuple[int, ...], order_of_chunks: list[tuple[int, ...]]) -> list[ChunkStage]:
    """Stages chunk by chunk: through the dimensions in the chunk's order, and back."""
    stages: list[ChunkStage] = []
    for chunk, order in enumerate(order_of_chunks):
        there = [(dim, order[:i], order[i + 1 :]) for i, dim in enumerate(order) if dims[dim] > 1]
        if comm != Comm.ALL_GATHER:
            stages += [ChunkStage(chunk, dim, True, done, left) for dim, done, left in there]
        if comm != Comm.REDUCE_SCATTER:
            stages += [ChunkStage(chunk, dim, False, done, left) for dim, done, left in there[::-1]]
    return stages


def _dependencies(
    stages: list[ChunkStage], dims: tuple[int, ...], stride: Int64s, coordinate: list[Int64s], rank: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """(lane, lane that it waits for, lead): on the ring of its stage, on earlier stages of its chunk, and on the chunk before it in
    the dimension, since a dimension takes one chunk at a time."""
    n = len(rank)
    waits, on, leads = [], [], []
    before = [
        rank + ((coordinate[dim] - 1) % d - coordinate[dim]) * int(s) for dim, (s, d) in enumerate(zip(stride, dims, strict=True))
    ]

    def wait(at: int, other: int, dim: int, lead: int) -> None:
        waits.append(at * n + rank)
        on.append(other * n + before[dim])
        leads.append(np.full(n, lead, dtype=np.int64))

    for at, stage in enumerate(stages):
        wait(at, at, stage.dim, 1)
        queue = None
        for other, earlier in enumerate(stages[:at]):
            if earlier.chunk == stage.chunk:
                wait(at, other, earlier.dim, ALL)
            elif (earlier.dim, earlier.adds) == (stage.dim, stage.adds):
                queue = other
        if queue is not None:
            wait(at, queue, stage.dim, ALL)
    return np.concatenate(waits), np.concatenate(on), np.concatenate(leads)


def hierarchical(call: CollectiveCall) -> Pattern:  # long: ends in a column a line
    """Lanes of an all-reduce, all-gather or reduce-scatter: n for each chunk, dimension and phase; those are the groups."""
    n, comm = call.ranks, call.comm
    dims = call.dims or ((call.per_node, call.nodes) if call.nodes > 1 and n % call.per_node == 0 else (n,))
    if comm not in _CALLS:
        raise SpecError("algorithm", "hierarchical", "all_reduce, all_gather or reduce_scatter")
    if math.prod(dims) != n or min(dims) < 1:
        raise SpecError("dims", dims, f"dimensions whose product is {n}", "Innermost first, such as 8,16.")
    if call.speeds and (len(call.speeds) != len(dims) or min(call.speeds) <= 0):
        raise SpecError("speeds", call.speeds, "a positive speed for each dimension")
    chunks = max(1, call.chunks)
    part, _ = cut(call.size, chunks * n, math.inf)
    stride = np.cumprod([1, *dims[:-1]])
    rank = np.arange(n)
    coordinate = [rank // int(s) % d for s, d in zip(stride, dims, strict=True)]
    stages = _stages(comm, dims, orders(dims, call.speeds, chunks))
    waits, on, leads = _dependencies(stages, dims, stride, coordinate, rank)
    lanes = len(stages) * n
    start, lane, lead = deps(lanes, waits, on, leads)
    src = np.tile(rank, len(stages)).astype(np.int32)
    dst = np.concatenate(
        [rank + ((coordinate[dim] + 1) % dims[dim] - coordinate[dim]) * int(stride[dim]) for _, dim, _, _, _ in stages]
    ).astype(np.int32)
    unit = [part * math.prod(dims[d] for d in left) for _, _, _, _, left in stages]  # bytes of a slice
    slice_ = np.repeat(np.array(unit, dtype=np.int64), n)
    turns = np.repeat(np.array([dims[dim] - 1 for _, dim, _, _, _ in stages], dtype=np.int64), n)
    crosses = (call.node_of(src) != call.node_of(dst)).reshape(len(stages), n).any(axis=1)
    far = [bool(crossing) for crossing in crosses]

    def carries(lane: int, slice: int) -> Cargo:
        at, r = divmod(lane, n)
        chunk, dim, adds, done, _ = stages[at]
        x = (int(coordinate[dim][r]) - slice - (1 if adds else 0)) % dims[dim]
        same = [d for d in done if d != dim]
        inside = [p for p in range(n) if coordinate[dim][p] == x and all(coordinate[d][p] == coordinate[d][r] for d in same)]
        return [chunk * n + p for p in inside], adds

    def seconds_alone(local: float, net: float) -> float:
        # Each dimension takes its chunks one by one; the busiest has the others' share of one chunk before and after it.
        busy = [0.0] * len(dims)
        for at, (_, dim, _, _, _) in enumerate(stages):
            busy[dim] += unit[at] * (dims[dim] - 1) / max(1.0, call.size) * (net if far[at] else local)
        return max(busy) + (sum(busy) - max(busy)) / chunks

    first = [at for at, stage in enumerate(stages) if stage[0] == 0]
    local_steps = sum(dims[stages[at][1]] - 1 for at in first if not far[at])
    net_steps = sum(dims[stages[at][1]] - 1 for at in first if far[at])
    return Pattern(
        src,
        dst,
        slice_ * turns,
        slice_,
        fill_lanes(lanes, 8),
        np.repeat(np.arange(len(stages), dtype=np.int32), n),
        fill_lanes(lanes, 0),
        np.full(lanes, call.size),
        start,
        lane,
        lead,
        local_steps,
        net_steps,
        seconds_alone,
        chunks * n,
        carries,
        lambda piece: piece % n,
    )


class Hierarchical(CollectiveAlgorithm):
    def lower(self, call: CollectiveCall) -> Pattern:
        return hierarchical(call)


HIERARCHICAL = Hierarchical()
