"""NVLS: the NVSwitch adds and copies. NVLSTree: between nodes the sums go up and down NCCL's double binary tree.

In a loop of a channel each GPU (head) handles one chunk. All-reduce: the switch reads the chunk from every GPU, gives the head
their sum, takes it back and copies it to every GPU. So a GPU's link carries S up for the sums and S/g for its own part, and the
same down: (g + 1)/g of the buffer each way (`src/device/all_reduce.h`, NCCL 2.30.7).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import ClosedCall, CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import ADD, COPY, MOVE, Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.network.algorithms.tree import depth, double_tree
from windtunnel.network.algorithms.tuning import Latencies, steps_of
from windtunnel.network.closed.cost import CallParts, fill_pipeline
from windtunnel.network.closed.fitted import NetConstants, NodeConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.network.nccl.settings import Settings
from windtunnel.workload.ops import Comm

_CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER)
_KIB = 2.0**10
Chunks = tuple[tuple[float, float], ...]
"""(chunk, loops that the message must fill for it), largest first."""
_CHUNKS: Chunks = ((128 * _KIB, 64.0), (64 * _KIB, 8.0), (32 * _KIB, 2.0))
_GAIN = 8
"""Ranks beyond which the rate does not rise."""
EFFICIENCY = {"hopper": 0.85, "blackwell": 0.74}


def switched_pattern(call: CollectiveCall, chunks: Chunks) -> Pattern:
    """Lanes through the switches of nodes, and over trees of several."""
    n, nodes, channels = call.ranks, call.nodes, call.channels
    here = min(n, call.per_node)
    chunk, loops = cut(call.size, channels * here, chunk_of(call.size, channels, here, chunks)[0])
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


def chunk_of(size: float, channels: int, heads: int, chunks: Chunks) -> tuple[float, float]:
    """(chunk, bytes of one loop over channels and heads) by the thresholds of NCCL 2.30.7's `calcCollChunking`."""
    smallest = 16 * _KIB
    for chunk, times in chunks:
        if size >= times * channels * heads * chunk:
            return chunk, channels * heads * chunk
        smallest = chunk / 2
    return smallest, channels * heads * smallest


class Switched(CollectiveAlgorithm):
    """What NVLS and its tree over nodes share."""

    tuned = True
    closed_form = True
    adds_in_switches = True
    known: ClassVar[Latencies]

    @abstractmethod
    def chunks(self, nodes: int) -> Chunks:
        """The sizes of chunks by the size of a message."""

    def has_switches(self, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
        """Whether switches of nodes add. Groups of two and three gain nothing from one: each GPU still sends its whole buffer
        once."""
        return links.nvls and settings.nvls and graph.nvls >= 2 and group.per_node > 2

    def switch_rate(self, most: float, double: float, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
        """GB/s as the tuner sees it: of a channel at `most`; `double`: a NIC's rate counts so many times."""
        n, ppn, channels = group.ranks, group.per_node, graph.nvls
        intra = graph.nvls_intra * EFFICIENCY[links.generation] * (channels - 1) / channels
        intra *= 2.0 if comm == Comm.ALL_REDUCE else (ppn - 1) / ppn
        inter = math.inf
        if group.nodes > 1:
            inter = graph.channels * graph.inter / channels * double
        return channels * min(intra, inter, most) * n / steps_of(comm, n)

    def crossings(self, nodes: int) -> float:
        """Times that a node's NIC carries the buffer, with three nodes or more."""
        return 1.0

    def parts(self, call: ClosedCall) -> CallParts:
        comm, size, group, links, graph, _, node, net, _ = call
        here, nodes = group.per_node, group.nodes
        # The switch pulls a GPU's whole buffer once, and the GPU multicasts its part of the sum: (1 + 1/n) per direction. Beyond
        # eight ranks the rate does not rise: 64 and 72 GPUs of an NVL72 achieve that of 8.
        heads = min(here, _GAIN)
        traffic = (heads + 1) / heads if comm == Comm.ALL_REDUCE else 1.0
        chunk, loop = chunk_of(size, graph.nvls, here, self.chunks(nodes))
        rate = links.intra * node.nvls / traffic / (1.0 + node.nvls_overhead / chunk) * (graph.nvls_running / max(1, graph.nvls))
        outside, latency = math.inf, node.launch + node.nvls_hop
        if nodes > 1:
            # With two nodes each sends the buffer once to one peer; with more, twice, and its NIC carries flows of three peers.
            share = net.pair if nodes == 2 else net.tree / self.crossings(nodes)
            rate, outside = rate * node.nvls_tree, links.inter * graph.reach(links.nics) * share
            latency += net.launch + 2 * math.log2(nodes) * (net.nvls_hop + links.hop) + node.nvls_head * max(0, here - _GAIN)
        fill = node.nvls_fill if nodes == 1 else node.nvls_fill + net.nvls_fill * (1.0 + math.log2(nodes)) / 2
        return fill_pipeline(latency, size, rate, outside, fill * min(loop, size))

    def breaks(self, group: Group, graph: ChannelSearch) -> Iterable[float]:
        """Where the chunk grows."""
        return sorted(times * graph.nvls * group.per_node * chunk for chunk, times in self.chunks(group.nodes))

    def channels(self, graph: ChannelSearch) -> int:
        return max(1, graph.nvls_running)

    def hops(self, protocol: int, node: NodeConstants, net: NetConstants) -> tuple[float, float]:
        return node.nvls_hop, net.nvls_hop


class Nvls(Switched):
    number = 4
    known = Latencies((0.0, 0.0, 0.0), nvlink=(0.0, 0.0, 25.0), pci=(0.0, 0.0, 0.0), net=(0.0, 0.0, 18.0))

    def chunks(self, nodes: int) -> Chunks:
        return _CHUNKS

    def is_allowed(self, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
        alone = group.nodes == 1 or links.sharp and settings.collnet
        return self.has_switches(group, links, graph, settings) and alone

    def latency(self, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
        return self.known.near_hop(protocol, links) + (self.known.far_hop(protocol, links) if group.nodes > 1 else 0.0)

    def bandwidth(self, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
        return self.switch_rate(math.inf, 1.0, comm, group, links, graph)

    def running(self, graph: ChannelSearch) -> int:
        return graph.nvls_running

    def lower(self, call: CollectiveCall) -> Pattern:
        """All-reduce, all-gather or reduce-scatter in one node: for each channel up to four lanes a GPU, to and from switch n."""
        if call.nodes > 1 or call.comm not in _CALLS:
            allowed = "all_reduce, all_gather or reduce_scatter in one node"
            raise SpecError("algorithm", "nvls", allowed, "Several nodes: nvls_tree.")
        return switched_pattern(call, _CHUNKS)

    def adds_in_fabric(self, group: Group) -> bool:
        return group.nodes > 1


NVLS = Nvls()
