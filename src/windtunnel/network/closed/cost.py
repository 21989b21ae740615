"""The parts of a selected algorithm's time: latency of its steps, traffic over rates inside and between nodes, a pipeline's fill.

seconds = launch + steps x hop + max(bytes inside / rate inside, bytes between / rate between) + fill. Traffic factors follow from
the algorithms, rates from channels, buffers, NVLink, PCIe and NICs. Launch, hops, the share of a link that each protocol achieves,
what a channel copies, and the fill are fitted constants (`catalog/calibration/collectives.toml`), a few per GPU generation and
fabric.

The closed form adds the parts up; lanes (`network/lanes/build.py`) have the same rates and are run.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from windtunnel.network.closed.fitted import SENDS, NetConstants, NodeConstants, SendConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.network.nccl.sends import BATCH, LL_BYTES
from windtunnel.workload.ops import Comm

_ON_WIRE_RCCL = (0.5, 56.0 / 64.0, 1.0)
"""Data per byte sent, as `DATA_ON_WIRE` of NCCL: RCCL's LL128 gives 8 of 64 bytes to flags (its `device.h`)."""


class Cost(NamedTuple):
    """Total seconds, and the size-independent part of them."""

    seconds: float
    latency: float


class CallParts(NamedTuple):
    """Seconds of a call on links without other traffic."""

    latency: float
    """Launch and hops."""
    inside: float
    """All of its bytes on the links inside nodes."""
    outside: float
    """The same between nodes; 0 for a call inside one."""
    fill: float
    """Until the pipeline gives its first result."""

    @property
    def seconds(self) -> float:
        """Of the call: bytes inside nodes and between them move at the same time."""
        return self.latency + max(self.inside, self.outside) + self.fill


def parts_of(
    comm: Comm,
    size: float,
    group: Group,
    links: GroupLinks,
    graph: ChannelSearch,
    algorithm: str,
    protocol: str,
    node: NodeConstants,
    net: NetConstants,
    sends: SendConstants = SENDS,
) -> CallParts:
    """The parts of a collective of `size` bytes in total with the selected algorithm and protocol."""
    if comm == Comm.SEND_RECV:
        return _send_recv(size, group, links, graph, node, net, sends)
    if comm == Comm.ALL_TO_ALL:
        return _all_to_all(size, group, links, graph, node, net, sends)
    if comm in (Comm.GATHER, Comm.SCATTER):
        return _rooted_cost(size, group, links, graph, node, net, sends)
    if algorithm == c.RING:
        return _ring(comm, size, group, links, graph, protocol, node, net)
    if algorithm == c.TREE:
        return _tree(size, group, links, graph, protocol, node, net)
    if algorithm in (c.NVLS, c.NVLS_TREE):
        return _nvls(comm, size, group, links, graph, algorithm, node, net)
    if algorithm == c.PAT:
        return _pat(size, group, links, graph, node, net)
    return _collnet(size, group, links, graph, algorithm, node, net)


def _fill_pipeline(latency: float, moved: float, inside: float, outside: float, fill: float) -> CallParts:
    """`moved` bytes that pass the links inside nodes and those between them at these rates, and then `fill` bytes more."""
    return CallParts(latency, moved / inside, moved / outside, fill / min(inside, outside))


def _ring(
    comm: Comm,
    size: float,
    group: Group,
    links: GroupLinks,
    graph: ChannelSearch,
    protocol: str,
    node: NodeConstants,
    net: NetConstants,
) -> CallParts:
    n, nodes, p = group.ranks, group.nodes, c.PROTOCOLS.index(protocol)
    rounds = 2 if comm == Comm.ALL_REDUCE else 1
    steps, crossing = rounds * (n - 1), rounds * (nodes - 1)
    chain = comm in (Comm.BROADCAST, Comm.REDUCE)
    traffic = 1.0 if chain else rounds * (n - 1) / n
    limit = _limit(group, links, graph, node) * _on_wire(links)[p]
    inside = min(links.chain * node.ring[p] if group.per_node > 1 else math.inf, _pass_buffers(graph, p, node.hop[p]), limit)
    outside, latency = math.inf, node.launch + (steps - crossing) * node.hop[p]
    if nodes > 1:
        nics = links.inter * graph.reach(links.nics) * net.ring * _on_wire(links)[p]
        outside = min(nics, _pass_buffers(graph, p, net.hop[p] + links.hop), limit)
        latency += net.launch + crossing * (net.hop[p] + links.hop)
    fill = 0.0
    if protocol == c.SIMPLE:
        # One slice per channel is in flight before the first result can leave; a ring's chunk is two slices of at most 1 MiB. The
        # constant was fitted with NCCL's default number of channels, so that number is used here.
        chunk = size / (graph.usual * (1 if chain else n))
        fill = (node.fill if nodes == 1 else net.fill) * min(c.RING_SLICE, chunk / 2) * graph.usual
    return _fill_pipeline(latency, size * traffic, inside, outside, fill)


def _tree(
    size: float, group: Group, links: GroupLinks, graph: ChannelSearch, protocol: str, node: NodeConstants, net: NetConstants
) -> CallParts:
    p = c.PROTOCOLS.index(protocol)
    # Each byte passes a GPU's channels on its way up and down.
    limit = _limit(group, links, graph, node) * _on_wire(links)[p] / 2
    inside = min(
        links.chain * node.tree[p] if group.per_node > 1 else math.inf, _pass_buffers(graph, p, node.tree_hop[p]) / 2, limit
    )
    outside, latency = math.inf, node.launch + 2 * (group.per_node - 1) * node.tree_hop[p]
    depth = math.log2(group.nodes)
    if group.nodes > 1:
        # Two trees, each with half of the bytes: a node sends the whole buffer once if there are two nodes, else twice.
        nics = links.inter * graph.reach(links.nics) * net.tree * _on_wire(links)[p] / min(2.0, group.nodes - 1.0)
        outside = min(nics, _pass_buffers(graph, p, net.tree_hop[p] + links.hop) / 2, limit)
        latency += net.launch + 2 * depth * (net.tree_hop[p] + links.hop)
    fill = 0.0
    if protocol == c.SIMPLE:
        stages = group.per_node - 1 + depth
        fill = net.tree_fill * stages * min(c.STEP_BYTES[c.SIMPLE] * graph.usual, size / 4) / 2
    return _fill_pipeline(latency, size, inside, outside, fill)


def _limit(group: Group, links: GroupLinks, graph: ChannelSearch, node: NodeConstants) -> float:
    """B/s of a GPU that its channels move together, where fewer run than by NCCL's own rules.

    Inside a domain a channel moves what it copies, or its share of a ring's rate if that is more; between domains what NCCL's
    search assigns to it.
    """
    if graph.running >= graph.usual or group.nodes > 1 or math.isinf(node.channel):
        return graph.limit
    return min(graph.limit, graph.running * max(node.channel, node.ring[2] * links.whole / graph.usual))


def _pass_buffers(graph: ChannelSearch, protocol: int, hop: float) -> float:
    """B/s that the buffers of the running channels let through: what they hold, once in a hop's time."""
    return graph.running * graph.windows[protocol] / hop


def _on_wire(links: GroupLinks) -> tuple[float, float, float]:
    return c.DATA_ON_WIRE if links.nvidia else _ON_WIRE_RCCL


def _nvls(
    comm: Comm,
    size: float,
    group: Group,
    links: GroupLinks,
    graph: ChannelSearch,
    algorithm: str,
    node: NodeConstants,
    net: NetConstants,
) -> CallParts:
    here, nodes = group.per_node, group.nodes
    # The switch pulls a GPU's whole buffer once, and the GPU multicasts its part of the sum: (1 + 1/n) per direction. Beyond eight
    # ranks the rate does not rise: 64 and 72 GPUs of an NVL72 achieve that of 8.
    heads = min(here, _NVLS_GAIN)
    traffic = (heads + 1) / heads if comm == Comm.ALL_REDUCE else 1.0
    chunk, loop = nvls_chunk(size, graph.nvls, here, nodes, algorithm)
    rate = links.intra * node.nvls / traffic / (1.0 + node.nvls_overhead / chunk) * (graph.nvls_running / max(1, graph.nvls))
    outside, latency = math.inf, node.launch + node.nvls_hop
    if nodes > 1:
        # With two nodes each sends the buffer once to one peer; with more, twice, and its NIC carries flows of three peers.
        share = net.pair if nodes == 2 else net.tree / (min(2.0, nodes - 1.0) if algorithm == c.NVLS_TREE else 1.0)
        rate, outside = rate * node.nvls_tree, links.inter * graph.reach(links.nics) * share
        latency += net.launch + 2 * math.log2(nodes) * (net.nvls_hop + links.hop) + node.nvls_head * max(0, here - _NVLS_GAIN)
    fill = node.nvls_fill if nodes == 1 else node.nvls_fill + net.nvls_fill * (1.0 + math.log2(nodes)) / 2
    return _fill_pipeline(latency, size, rate, outside, fill * min(loop, size))


def nvls_chunk(size: float, channels: int, heads: int, nodes: int, algorithm: str) -> tuple[float, float]:
    """(chunk, bytes of one loop over channels and heads) by the thresholds of NCCL 2.30.7's `calcCollChunking`."""
    smallest = _SMALLEST_CHUNK
    for chunk, times in _chunk_rule(nodes, algorithm):
        if size >= times * channels * heads * chunk:
            return chunk, channels * heads * chunk
        smallest = chunk / 2
    return smallest, channels * heads * smallest


def nvls_cuts(channels: int, heads: int, nodes: int, algorithm: str) -> list[float]:
    """Sizes at which the chunk grows."""
    return sorted(times * channels * heads * chunk for chunk, times in _chunk_rule(nodes, algorithm))


_NVLS_GAIN = 8
_KIB = 2.0**10
_SMALLEST_CHUNK = 16 * _KIB


def _chunk_rule(nodes: int, algorithm: str) -> tuple[tuple[float, float], ...]:
    """(chunk, loops that the message must fill for it), largest first."""
    if algorithm == c.NVLS:
        return (128 * _KIB, 64.0), (64 * _KIB, 8.0), (32 * _KIB, 2.0)
    wide = ((256 * _KIB, 32.0), (128 * _KIB, 16.0), (64 * _KIB, 4.0), (32 * _KIB, 1.0))
    return wide if nodes < 4 else wide[2:]


def _collnet(
    size: float, group: Group, links: GroupLinks, graph: ChannelSearch, algorithm: str, node: NodeConstants, net: NetConstants
) -> CallParts:
    """SHARP: the switches add, so a node sends the buffer once and receives the sum once."""
    ppn = group.per_node
    direct = links.intra * node.ring[2] / (2 * (ppn - 1) / ppn) if ppn > 1 else math.inf
    inside = min(direct if algorithm == c.COLLNET_DIRECT else links.intra * node.tree[2], graph.limit)
    outside = min(links.inter * graph.reach(links.nics) * net.ring, graph.limit)
    hops = 2 if algorithm == c.COLLNET_DIRECT else 2 * (ppn - 1)
    latency = node.launch + hops * node.hop[2] + net.launch + 2 * (net.hop[2] + links.hop)
    return _fill_pipeline(latency, size, inside, outside, net.nvls_fill * min(graph.usual * c.STEP_BYTES[c.SIMPLE], size / 2))


def _pat(size: float, group: Group, links: GroupLinks, graph: ChannelSearch, node: NodeConstants, net: NetConstants) -> CallParts:
    latency = node.launch + net.launch + math.ceil(math.log2(group.ranks)) * (net.hop[2] + links.hop)
    rate = min(links.inter * graph.reach(links.nics) * net.ring, graph.limit)
    return _fill_pipeline(latency, size * (group.ranks - 1) / group.ranks, math.inf, rate, 0.0)


def _send_recv(
    size: float,
    group: Group,
    links: GroupLinks,
    graph: ChannelSearch,
    node: NodeConstants,
    net: NetConstants,
    sends: SendConstants,
) -> CallParts:
    """Every rank to the next one, which both sends and receives, or one rank to another; the slowest message is inside the node, or
    leaves it through the one NIC of its rank."""
    both = group.ranks > 2
    channels = graph.sends.of(size) if links.hosts == 1 else graph.sends.total
    rate = min(links.pair * _share(links, node, both), _channel(node, both) * channels, graph.limit)
    if group.nodes == 1:
        return CallParts(node.p2p_launch + _batch(size, 1, links, node, sends), size / rate, 0.0, 0.0)
    latency = node.p2p_launch + net.p2p_launch + links.hop
    outside = min(links.inter / group.per_node * net.p2p, graph.limit)
    return CallParts(latency, size / rate if group.per_node > 1 else 0.0, size / outside, 0.0)


def _share(links: GroupLinks, node: NodeConstants, both: bool) -> float:
    """Fraction of a link that messages reach, in `both` directions or in one."""
    return node.exchange if both and node.exchange and links.medium == "nvlink" else node.p2p


def _channel(node: NodeConstants, both: bool) -> float:
    """B/s of one channel each way. One that only sends or only receives gives all of its warps to that."""
    return node.channel * (1.0 if both else 2.0)


def _batch(size: float, peers: int, links: GroupLinks, node: NodeConstants, sends: SendConstants, far: bool = False) -> float:
    """Seconds beyond the launch before messages of `size` bytes to `peers` others flow."""
    batches = math.ceil(peers / BATCH)
    if not links.nvidia:
        return batches * node.hop[2]
    simple = sends.simple if far or size > LL_BYTES else 0.0
    return batches * simple + sends.peer * peers


def _rooted_cost(
    size: float,
    group: Group,
    links: GroupLinks,
    graph: ChannelSearch,
    node: NodeConstants,
    net: NetConstants,
    sends: SendConstants,
) -> CallParts:
    """Gather and scatter are sends between the root and all others: the root's links and its single NIC bound them."""
    n, here = group.ranks, group.per_node
    part = size / n
    latency = node.p2p_launch + _batch(part, n - 1, links, node, sends, group.nodes > 1)
    inside = outside = 0.0
    if here > 1:
        channels = graph.sends.count_busy(part, here - 1)
        inside = part * (here - 1) / min(links.intra * node.p2p, _channel(node, False) * channels, graph.limit)
    if group.nodes > 1:
        outside = part * (n - here) / min(links.inter / here * net.p2p, graph.limit)
        latency += net.p2p_launch + links.hop + math.ceil((n - here) / BATCH) * net.message
    return CallParts(latency, inside, outside, 0.0)


def _all_to_all(
    size: float,
    group: Group,
    links: GroupLinks,
    graph: ChannelSearch,
    node: NodeConstants,
    net: NetConstants,
    sends: SendConstants,
) -> CallParts:
    """n-1 sends of size/n each from every rank; NVLink and NIC parts run side by side, eight peers at a time."""
    n, here = group.ranks, group.per_node
    part = size / n
    latency = node.p2p_launch + _batch(part, n - 1, links, node, sends, group.nodes > 1)
    inside = outside = fill = 0.0
    if here > 1:
        channels, moved = graph.sends.count_busy(part, here - 1), part * (here - 1)
        if links.relays:
            moved += part * (n - here) * (here - 1) / here
        rate = min(links.intra * _share(links, node, True), _channel(node, True) * channels, graph.limit)
        # As of a ring's fill: the constant was fitted with NCCL's default number of channels.
        first = graph.usual_sends.count_busy(part, here - 1) * graph.sends.step
        fill = sends.fill * min(moved, first) / rate if links.nvidia and group.nodes == 1 else 0.0
        inside = moved / rate
    if group.nodes > 1:
        outside = part * (n - here) * here / min(links.inter * net.p2p, graph.limit * here)
        # The fitted seconds of a message are those of eight that share a connection.
        alone = min(here, BATCH) if links.apart else 1
        latency += net.p2p_launch + links.hop + math.ceil((n - here) / BATCH) * alone * net.message
    return CallParts(latency, inside, outside, fill)
