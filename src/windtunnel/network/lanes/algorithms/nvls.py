"""NVLS: the NVSwitch adds and copies. NVLSTree: between nodes the sums go up and down NCCL's double binary tree.

In a loop of a channel each GPU (head) handles one chunk. All-reduce: the switch reads the chunk from every GPU, gives the head
their sum, takes it back and copies it to every GPU. So a GPU's link carries S up for the sums and S/g for its own part, and the
same down: (g + 1)/g of the buffer each way (`src/device/all_reduce.h`, NCCL 2.30.7).
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.closed.cost import nvls_chunk
from windtunnel.network.lanes.algorithms.pattern import ADD, COPY, MOVE, Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.network.lanes.algorithms.tree import depth, double_tree
from windtunnel.network.nccl import constants as c
from windtunnel.workload.ops import Comm

_CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER)


def nvls(call: CollectiveCall) -> Pattern:
    """All-reduce, all-gather or reduce-scatter in one node: for each channel up to four lanes a GPU, to and from switch n."""
    if call.nodes > 1 or call.comm not in _CALLS:
        raise SpecError("algorithm", "nvls", "all_reduce, all_gather or reduce_scatter in one node", "Several nodes: nvls_tree.")
    return _switched_pattern(call, c.NVLS)


def nvls_tree(call: CollectiveCall) -> Pattern:
    """All-reduce over several nodes with as many ranks each."""
    if call.comm != Comm.ALL_REDUCE or call.nodes < 2 or call.ranks % call.per_node:
        raise SpecError("algorithm", "nvls_tree", "an all_reduce over several nodes with as many ranks each")
    return _switched_pattern(call, c.NVLS_TREE)


def _switched_pattern(call: CollectiveCall, algorithm: str) -> Pattern:
    n, nodes, channels = call.ranks, call.nodes, call.channels
    here = min(n, call.per_node)
    chunk, loops = cut(call.size, channels * here, nvls_chunk(call.size, channels, here, nodes, algorithm)[0])
    trees = double_tree(nodes)
    shapes = [_Shape(n, here, parents, call.comm) for parents in trees]
    half, each = -(-channels // 2), len(shapes[0].rows)
    tables = [np.array(shape.rows, dtype=np.int64) for shape in shapes]
    edges = [deps(each, on[:, 0], on[:, 1], 0) for on in (np.array(s.after, dtype=np.int64).reshape(-1, 2) for s in shapes)]
    which = (np.arange(channels) >= half).astype(int) if nodes > 1 else np.zeros(channels, dtype=int)
    table = np.concatenate([tables[w] for w in which])
    dep_start = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(edges[w][0]) for w in which]))]).astype(np.int64)
    dep_lane = np.concatenate([edges[w][1] + channel * each for channel, w in enumerate(which)]).astype(np.int32)
    lanes = len(table)
    src, dst, parts = table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2]
    bytes_: Int64s = parts * chunk * loops
    between = call.node_of(src) != call.node_of(dst)
    # The data of one head is 1/g of a link's traffic in a loop. A sum and a store run at half of the speed of the others, so that
    # both fit on the link: they take 2/g of a loop's time.
    quick = max(1.0, here / 2)
    inside = 4 if call.comm == Comm.ALL_REDUCE else 2
    deep = 2 * max(depth(p) for p in trees) if nodes > 1 else 0

    def carries(lane: int, slice: int) -> Cargo:
        base = (lane // each * loops + slice) * here
        how = int(table[lane, 3])
        if parts[lane] == here:
            return range(base, base + here), how
        return (base + int(min(src[lane], dst[lane])) % here,), how

    def seconds_alone(local: float, net: float) -> float:
        way = (1.0 + 1.0 / quick) * (inside // 2) * local + deep * net
        return (way + (loops - 1) * max(local, net if deep else 0.0)) / loops

    return Pattern(
        src,
        dst,
        bytes_,
        parts * chunk,
        fill_lanes(lanes, 8),
        fill_lanes(lanes, 0),
        np.repeat(np.arange(channels, dtype=np.int32), each),
        np.where(between, bytes_, np.where(parts == here, here, quick) * chunk * loops).astype(np.float64),
        dep_start,
        dep_lane,
        np.zeros(len(dep_lane), dtype=np.int64),
        inside,
        deep,
        seconds_alone,
        channels * loops * here,
        carries,
        lambda piece: piece % here,
    )


class _Shape:
    """One channel: rows of (src, dst, chunks in a slice, COPY or ADD or MOVE) and pairs (row, row that it waits for)."""

    def __init__(self, n: int, here: int, parents: list[int], comm: Comm) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self.after: list[tuple[int, int]] = []
        nodes = len(parents)
        ready: list[list[list[int]]] = [[[] for _ in range(here)] for _ in range(nodes)]  # what the result at a head waits for
        if comm != Comm.ALL_GATHER:
            for node in range(nodes):
                pulled = [self._lane(node * here + g, n + node, here, MOVE, []) for g in range(here)]
                ready[node] = [[self._lane(n + node, node * here + h, 1, ADD, pulled)] for h in range(here)]
        if nodes > 1:
            self._cross_nodes(parents, here, ready)
        if comm != Comm.REDUCE_SCATTER:
            for node in range(nodes):
                stored = [self._lane(node * here + h, n + node, 1, COPY, ready[node][h]) for h in range(here)]
                for g in range(here):
                    self._lane(n + node, node * here + g, here, COPY, stored)

    def _lane(self, src: int, dst: int, parts: int, how: int, after: list[int]) -> int:
        self.after += [(len(self.rows), other) for other in after]
        self.rows.append((src, dst, parts, how))
        return len(self.rows) - 1

    def _cross_nodes(self, parents: list[int], here: int, ready: list[list[list[int]]]) -> None:
        """Up and down the tree of nodes, head by head."""
        down = [parents.index(-1)]
        for node in down:  # grows: parents before children
            down += [child for child, parent in enumerate(parents) if parent == node]
        for head in range(here):
            for node in reversed(down[1:]):
                above = parents[node]
                ready[above][head].append(self._lane(node * here + head, above * here + head, 1, ADD, ready[node][head]))
            for node in down[1:]:
                above = parents[node]
                ready[node][head] = [self._lane(above * here + head, node * here + head, 1, COPY, ready[above][head])]


def switches(call: CollectiveCall) -> Int32s:
    """Numbers of the switches of `nvls` and `nvls_tree`."""
    return np.arange(call.ranks, call.ranks + call.nodes, dtype=np.int32)
