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
from windtunnel.network.algorithm import ClosedCall, CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import ALL, COPY, Cargo, CollectiveCall, Pattern, cut, fill_lanes
from windtunnel.network.closed.cost import CallParts
from windtunnel.network.closed.fitted import NetConstants, NodeConstants, SendConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.channels import BATCH, LL_BYTES, ChannelSearch
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
    # Rank 0 represents all ranks: sends inside the node and to others of each chain, in which one waits for the one before.
    inside = local[:rounds]
    chains = [(int(sum(inside[i::at_once])), int(sum(~inside[i::at_once]))) for i in range(min(at_once, rounds))]

    def seconds_alone(local: float, net: float) -> float:
        each_local, each_net = local * min(at_once, near) / max(1, near), net * min(at_once, far) / max(1, far)
        return max(here * each_local + there * each_net for here, there in chains)

    def carries(lane: int, slice: int) -> Cargo:
        last = slice == -(-block // int(slices[lane])) - 1  # a block has arrived when its last slice has
        return ((int(src[lane]) * n + int(dst[lane]),) if last else ()), False

    crossing, staying = max((there, here) for here, there in chains)
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
        staying,
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


def _all_to_all_parts(
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


class Messages(CollectiveAlgorithm):
    closed_form = True
    messages = True

    def parts(self, call: ClosedCall) -> CallParts:
        comm, size, group, links, graph, _, node, net, sends = call
        if comm == Comm.SEND_RECV:
            return _send_recv(size, group, links, graph, node, net, sends)
        if comm == Comm.ALL_TO_ALL:
            return _all_to_all_parts(size, group, links, graph, node, net, sends)
        return _rooted_cost(size, group, links, graph, node, net, sends)

    def lower(self, call: CollectiveCall) -> Pattern:
        return all_to_all(call)

    def launch(self, comm: Comm, group: Group, node: NodeConstants, net: NetConstants, parts: CallParts) -> float:
        if group.nodes > 1 and comm != Comm.ALL_TO_ALL:
            # A message's latency contains that of its links, which packets have by themselves: as a delay it can give that up.
            return parts.latency / 2
        return node.p2p_launch + (net.p2p_launch if group.nodes > 1 else 0.0)

    def hops(self, protocol: int, node: NodeConstants, net: NetConstants) -> tuple[float, float]:
        return node.hop[2], node.hop[2]


P2P = Messages()
