"""NCCL's double binary tree: two trees over the nodes, half of the channels each, and a chain of the GPUs inside a node.

Sums go up, results come down, slice after slice; in the second tree the leaves of the first are inner nodes. A node's GPU beside
the channel's NIC exchanges with the parent; the children of a node exchange with its first and second GPU (`src/graph/trees.cc`,
`connect.cc` of NCCL 2.30.7).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import ClosedCall, CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.network.algorithms.tuning import BY_PROTOCOL, Latencies, bus, column, halve_all_reduce, most_of_ll
from windtunnel.network.closed.cost import CallParts, fill_pipeline, limit_of, on_wire, pass_buffers
from windtunnel.network.closed.fitted import NetConstants, NodeConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch, log2_floor
from windtunnel.network.nccl.settings import Settings
from windtunnel.workload.ops import Comm


def binary_tree(nodes: int) -> list[int]:
    """Parent of each node in NCCL's tree, -1 for the root (node 0). A node's lowest set bit is its height; its parent has the next
    higher bit instead, or only that bit cleared if no such node exists."""
    parents = [-1]
    for node in range(1, nodes):
        bit = node & -node
        up = (node ^ bit) | (bit << 1)
        parents.append(node ^ bit if up >= nodes else up)
    return parents


def double_tree(nodes: int) -> tuple[list[int], list[int]]:
    """Both trees: the second is the first mirrored (even) or shifted by one (odd); leaves become inner nodes."""
    first = binary_tree(nodes)
    if nodes % 2 == 0:
        return first, [-1 if first[nodes - 1 - i] < 0 else nodes - 1 - first[nodes - 1 - i] for i in range(nodes)]
    moved = [first[(i - 1) % nodes] for i in range(nodes)]
    return first, [-1 if up < 0 else (up + 1) % nodes for up in moved]


def depth(parents: list[int]) -> int:
    """Edges from the root to the farthest node."""
    deep, most = [-1] * len(parents), 0
    for node in range(len(parents)):
        way = []
        at = node
        while at >= 0 and deep[at] < 0:
            way.append(at)
            at = parents[at]
        below = deep[at] if at >= 0 else -1
        for step, seen in enumerate(reversed(way), 1):
            deep[seen] = below + step
        most = max(most, deep[node])
    return most


def tree_chunk(call: CollectiveCall) -> float:
    """Bytes of a slice: NCCL halves a step while too few slices would be in flight (`calcCollChunking`)."""
    chunk, levels = call.step, call.per_node - 1 + int(math.log2(max(1, call.nodes)))
    if call.protocol == c.SIMPLE:
        for times, least in ((8, 128), (4, 64), (1, 32)):
            while call.size / (call.channels * chunk) < levels * times and chunk > least * 1024:
                chunk /= 2
    elif call.protocol == c.LL128:
        steps = 1 + math.log2(max(1, call.nodes)) + 0.1 * call.per_node
        for times, least in ((64, 128), (16, 32)):
            while call.size / (call.channels * chunk) < steps * times / call.per_node and chunk > least * 1024:
                chunk /= 2
    return chunk


def tree(call: CollectiveCall) -> Pattern:
    """Lanes of an all-reduce: 2(n - 1) for each channel. SpecError for other calls."""
    if call.comm != Comm.ALL_REDUCE:
        raise SpecError("algorithm", "tree", "an algorithm that has this call", "NCCL's trees reduce; ring does all calls.")
    n, channels = call.ranks, call.channels
    order = call.orders(call.exits())
    chunk, slices = cut(call.size, channels, min(tree_chunk(call), c.SWEEPS.get(call.protocol, math.inf)))
    shapes = [_shape(n, call.per_node, which) for which in (0, 1)]
    half = -(-channels // 2)
    each = 2 * (n - 1)
    src, dst, starts, on = [], [], [], []
    for channel in range(channels):
        shape = shapes[channel >= half]
        src.append(order[channel, shape[0]])
        dst.append(order[channel, shape[1]])
        starts.append(np.diff(shape[2]))
        on.append(shape[3] + channel * each)
    lanes = channels * each
    dep_start = np.concatenate([[0], np.cumsum(np.concatenate(starts))]).astype(np.int64)
    dep_lane = np.concatenate(on).astype(np.int32)
    bytes_ = np.full(lanes, slices * chunk, dtype=np.int64)
    inside, between = max(_longest_way(n, call.per_node, which) for which in (0, 1))[::-1]

    def carries(lane: int, slice: int) -> Cargo:
        channel, at = divmod(lane, each)
        return (channel * slices + slice,), at < n - 1

    def seconds_alone(local: float, net: float) -> float:
        slowest = max(local if inside else 0.0, net if between else 0.0)
        return (inside * local + between * net + (slices - 1) * slowest) / slices

    return Pattern(
        np.concatenate(src),
        np.concatenate(dst),
        bytes_,
        np.full(lanes, chunk, dtype=np.int64),
        fill_lanes(lanes, 8),
        fill_lanes(lanes, 0),
        np.repeat(np.arange(channels, dtype=np.int32), each),
        bytes_.astype(np.float64),
        dep_start,
        dep_lane,
        np.zeros(len(dep_lane), dtype=np.int64),
        inside,
        between,
        seconds_alone,
        channels * slices,
        carries,
        lambda piece: 0,
    )


@lru_cache(maxsize=16)
def _longest_way(ranks: int, per_node: int, which: int) -> tuple[int, int]:
    """Sends (between nodes, inside nodes) from the last result's farthest rank up to the root and down again: most between nodes,
    and of these most inside."""
    up = _parents(ranks, per_node, which)
    farthest = (0, 0)
    for position in {min(node + per_node, ranks) - 1 for node in range(0, ranks, per_node)}:  # the last of each chain
        crossed = stayed = 0
        while (parent := int(up[position])) >= 0:
            same = parent // per_node == position // per_node
            crossed, stayed, position = crossed + (not same), stayed + same, parent
        farthest = max(farthest, (crossed, stayed))
    return 2 * farthest[0], 2 * farthest[1]


def _parents(ranks: int, per_node: int, which: int) -> Int64s:
    """[ranks] the position to which each position sends sums; -1 for the root."""
    parents = double_tree(-(-ranks // per_node))[which]
    up = np.arange(-1, ranks - 1, dtype=np.int64)  # the one before it in the node's chain
    children = [0] * len(parents)
    for node, parent in enumerate(parents):
        up[node * per_node] = -1
        if parent >= 0:
            size = min(per_node, ranks - per_node * parent)
            up[node * per_node] = parent * per_node + min(children[parent], size - 1)
            children[parent] += 1
    return up


@lru_cache(maxsize=16)
def _shape(ranks: int, per_node: int, which: int) -> tuple[Int32s, Int32s, Int64s, Int32s]:
    """(src, dst, dep_start, dep_lane) of one channel in positions (node after node, the chain's first GPU first): n - 1 lanes up,
    in the order of the position that sends, then those down, in the order of the position that receives."""
    up = _parents(ranks, per_node, which)
    root = int(np.argmin(up))
    sends = np.nonzero(up >= 0)[0]
    lane = np.full(ranks, -1, dtype=np.int64)  # lane up from this position; the one down to it comes ranks - 1 later
    lane[sends] = np.arange(ranks - 1)
    # Up: after all slices that come up to the sender. Down: after the slice that came down to it; at the root after all that came
    # up.
    feeds = sends[up[sends] != root]
    below = sends[up[sends] == root]
    first = lane[up[feeds]], lane[feeds]
    second = lane[feeds] + ranks - 1, lane[up[feeds]] + ranks - 1
    third = np.repeat(lane[below] + ranks - 1, len(below)), np.tile(lane[below], len(below))
    start, on, _ = deps(
        2 * (ranks - 1), np.concatenate([first[0], second[0], third[0]]), np.concatenate([first[1], second[1], third[1]]), 0
    )
    return (np.concatenate([sends, up[sends]]).astype(np.int32), np.concatenate([up[sends], sends]).astype(np.int32), start, on)


NET: c.Triple = (5.0, 8.5, 14.0)
"""Microseconds of a hop between nodes."""
_LATENCY = Latencies((6.8, 14.0, 8.4), nvlink=(0.6, 1.25, 4.0), pci=(1.0, 1.9, 4.0), net=NET)
_LL128_PER_CHANNEL: dict[str, c.Triple] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),
    "blackwell": (55.6, 31.67, 20.0),
}
_PER_CHANNEL: dict[str, c.Triple] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
    "blackwell": (70.0, 42.8, 24.0),
}
# Correction of the bandwidth by floor(log2(bytes / 64)).
_CORRECTION: dict[str, tuple[float, ...]] = {
    c.LL: (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0),
    c.LL128: (1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
    c.SIMPLE: (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}


class Tree(CollectiveAlgorithm):
    tuned = True
    number = 0
    protocols = BY_PROTOCOL
    closed_form = True
    walks_trees = True

    def is_allowed(self, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
        return comm == Comm.ALL_REDUCE

    def suits_other_libraries(self, comm: Comm, group: Group) -> bool:
        return comm == Comm.ALL_REDUCE and group.nodes > 1

    def latency(self, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
        intra, inter = _LATENCY.near_hop(protocol, links), _LATENCY.far_hop(protocol, links)
        return _LATENCY.base[protocol] + 2 * ((group.per_node - 1) * intra + log2_floor(group.nodes) * inter)

    def bandwidth(self, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
        generation, place = links.generation, column(group)
        rate = min(0.92 * bus(group, graph, graph.tree), graph.channels * _PER_CHANNEL[generation][place])
        if protocol == c.LL:
            rate = min(rate / 3.8, most_of_ll(group, links))
        elif protocol == c.LL128:
            share = 7.0 / 9.0 if group.nodes == 1 else 120.0 / 128.0
            rate = min(rate * share, graph.channels * _LL128_PER_CHANNEL[generation][place])
        return halve_all_reduce(rate, comm)

    def corrected_from(self, comm: Comm, group: Group, graph: ChannelSearch) -> Iterable[float]:
        return (64.0 * 2.0**k for k in range(1, 24))

    def correct(
        self,
        latency: float,
        bandwidth: float,
        protocol: str,
        size: float,
        comm: Comm,
        group: Group,
        links: GroupLinks,
        graph: ChannelSearch,
    ) -> tuple[float, float]:
        position = log2_floor(size / 64.0)
        return latency, bandwidth * _CORRECTION[protocol][position] if position < 23 else bandwidth

    def parts(self, call: ClosedCall) -> CallParts:
        _, size, group, links, graph, protocol, node, net, _ = call
        p = c.PROTOCOLS.index(protocol)
        # Each byte passes a GPU's channels on its way up and down.
        limit = limit_of(group, links, graph, node) * on_wire(links)[p] / 2
        near = links.chain * node.tree[p] if group.per_node > 1 else math.inf
        inside = min(near, pass_buffers(graph, p, node.tree_hop[p]) / 2, limit)
        outside, latency = math.inf, node.launch + 2 * (group.per_node - 1) * node.tree_hop[p]
        deep = math.log2(group.nodes)
        if group.nodes > 1:
            # Two trees, each with half of the bytes: a node sends the whole buffer once if there are two nodes, else twice.
            nics = links.inter * graph.reach(links.nics) * net.tree * on_wire(links)[p] / min(2.0, group.nodes - 1.0)
            outside = min(nics, pass_buffers(graph, p, net.tree_hop[p] + links.hop) / 2, limit)
            latency += net.launch + 2 * deep * (net.tree_hop[p] + links.hop)
        fill = 0.0
        if protocol == c.SIMPLE:
            stages = group.per_node - 1 + deep
            fill = net.tree_fill * stages * min(c.STEP_BYTES[c.SIMPLE] * graph.usual, size / 4) / 2
        return fill_pipeline(latency, size, inside, outside, fill)

    def lower(self, call: CollectiveCall) -> Pattern:
        return tree(call)

    def hops(self, protocol: int, node: NodeConstants, net: NetConstants) -> tuple[float, float]:
        return node.tree_hop[protocol], net.tree_hop[protocol]


TREE = Tree()
