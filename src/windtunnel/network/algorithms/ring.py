"""Rings of NCCL: per channel a cycle through all ranks, node after node, that leaves a node at the channel's NIC.

Rank p of the cycle sends a stream of chunks to rank p + 1 and may send chunk k once chunk k - 1 came in from rank p - 1.
All-reduce: 2(n-1) chunks per loop, of which the first n - 1 are partial sums; all-gather and reduce-scatter n - 1; broadcast and
reduce are a chain. (NCCL 2.30.7, `src/device/all_reduce.h`, `src/graph/connect.cc`.)

A chunk of Simple is four steps of the buffer, of other protocols one; a shorter message is split evenly. NCCL sends a Simple
chunk in two slices. Measured rings do not hide their hops behind the second slice (the closed form's fit needs all hops),
so a slice of a lane is a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import ClosedCall, CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.network.algorithms.tree import NET as TREE_NET
from windtunnel.network.algorithms.tuning import BY_PROTOCOL, Latencies, bus, column, most_of_ll, steps_of
from windtunnel.network.closed.cost import CallParts, fill_pipeline, limit_of, on_wire, pass_buffers
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.network.nccl.settings import Settings
from windtunnel.workload.ops import Comm

_STEPS = 8
_LEAST = 512  # bytes
_PASSED = 4096.0  # bytes
_CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.BROADCAST, Comm.REDUCE)


def ring(call: CollectiveCall) -> Pattern:
    """Lanes of a ring all-reduce, all-gather or reduce-scatter, n for each channel; of a broadcast or reduce n - 1."""
    if call.comm not in _CALLS:
        raise SpecError("algorithm", "ring", "all_reduce, all_gather, reduce_scatter, broadcast or reduce")
    if call.comm in (Comm.BROADCAST, Comm.REDUCE):
        return chain(call, reduces=call.comm == Comm.REDUCE)
    n, channels = call.ranks, call.channels
    order = call.orders((call.exits() + 1) % call.per_node, back=True)
    together = 4 if call.protocol == c.SIMPLE else 1
    chunk, loops = cut(call.size, channels * n, together * call.step)
    rounds = 2 if call.comm == Comm.ALL_REDUCE else 1
    turn = rounds * (n - 1)
    lanes, slices = channels * n, loops * turn
    position = np.tile(np.arange(n), channels)
    before = np.arange(lanes) - position + (position - 1) % n
    bytes_ = np.full(lanes, slices * chunk, dtype=np.int64)
    start, lane, lead = deps(lanes, np.arange(lanes), before, 1)
    late = 1 if call.comm == Comm.REDUCE_SCATTER else 0

    def carries(lane: int, slice: int) -> Cargo:
        channel, p = divmod(lane, n)
        loop, t = divmod(slice, turn)
        piece = (channel * loops + loop) * n + (p - t - late) % n
        return (piece,), call.comm != Comm.ALL_GATHER and t < n - 1

    src = order.ravel()
    dst = np.roll(order, -1, axis=1).ravel()
    crossing = call.node_of(src[:n]) != call.node_of(dst[:n])
    net = _most(crossing, slices)
    return Pattern(
        src,
        dst,
        bytes_,
        np.full(lanes, chunk, dtype=np.int64),
        fill_lanes(lanes, max(1, _STEPS // together)),
        fill_lanes(lanes, 0),
        np.repeat(np.arange(channels, dtype=np.int32), n),
        bytes_.astype(np.float64),
        start,
        lane,
        lead,
        slices - net,
        net,
        lambda local, far: max(local, far),
        channels * loops * n,
        carries,
        lambda piece: int(order[piece // n // loops, piece % n]),
        one_speed=True,
    )


def chain(call: CollectiveCall, reduces: bool) -> Pattern:
    """Broadcast from `call.root` along each channel's ring, or the reduction to it in the opposite direction."""
    n, channels = call.ranks, call.channels
    order = call.orders((call.exits() + 1) % call.per_node, back=True)
    at = np.argmax(order == call.root, axis=1)
    order = np.take_along_axis(order, (at[:, None] + np.arange(n)) % n, axis=1)
    if reduces:
        order = np.roll(order, -1, axis=1)
    # At least n chunks, so that a short message also uses all links. A rank passes on what its threads read at a time, where lines
    # have flags, or a packet; 64 n chunks are enough, since they fill the chain in a sixty-fourth of its time.
    share = call.size / channels
    passed = max(c.SWEEPS.get(call.protocol, _PASSED), share / (64 * n))
    chunk, slices = cut(call.size, channels, min(call.step, passed, max(_LEAST, share / n)))
    lanes = channels * (n - 1)
    position = np.tile(np.arange(n - 1), channels)
    later = np.nonzero(position)[0]
    start, lane, lead = deps(lanes, later, later - 1, 0)
    bytes_ = np.full(lanes, slices * chunk, dtype=np.int64)
    src, dst = order[:, :-1].ravel(), order[:, 1:].ravel()
    net = int((call.node_of(src) != call.node_of(dst)).reshape(channels, n - 1).sum(axis=1).max())
    return Pattern(
        src,
        dst,
        bytes_,
        np.full(lanes, chunk, dtype=np.int64),
        fill_lanes(lanes, _STEPS),
        fill_lanes(lanes, 0),
        np.repeat(np.arange(channels, dtype=np.int32), n - 1),
        bytes_.astype(np.float64),
        start,
        lane,
        lead,
        n - 1 - net,
        net,
        lambda local, far: max(local, far) * (1.0 + (n - 2) / slices),
        channels * slices,
        lambda lane, slice: ((lane // (n - 1) * slices + slice,), reduces),
        lambda piece: call.root,
        one_speed=True,
    )


def _most(crossing: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], slices: int) -> int:
    """Most lanes between nodes among `slices` that follow each other around the ring."""
    turns, rest = divmod(slices, len(crossing))
    seen = np.concatenate([[0], np.cumsum(np.tile(crossing, 2))])
    return int(turns * crossing.sum() + (seen[rest:] - seen[: len(seen) - rest]).max())


_LATENCY = Latencies((6.6, 14.0, 8.4), nvlink=(0.6, 1.9, 3.4), pci=(1.0, 2.5, 5.7), net=(2.7, 4.0, 14.0))
_LATENCY_ONE_EACH = _LATENCY._replace(net=TREE_NET)
"""With one rank a node."""
_LL128_PER_CHANNEL: dict[str, c.Triple] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 36.7),
    "blackwell": (40.0, 40.0, 40.0),
}
_SLICE = 2.0**20
"""Bytes of two steps of Simple."""


class RingAlgorithm(CollectiveAlgorithm):
    tuned = True
    number = 1
    protocols = BY_PROTOCOL
    closed_form = True
    walks_rings = True

    def is_allowed(self, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
        return True

    def suits_other_libraries(self, comm: Comm, group: Group) -> bool:
        return True

    def latency(self, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
        n, nodes = group.ranks, group.nodes
        known = _LATENCY_ONE_EACH if group.per_node == 1 else _LATENCY
        total, intra, inter = known.base[protocol], known.near_hop(protocol, links), known.far_hop(protocol, links)
        overhead = (0.0 if nodes == 1 else 2.0 if links.amd else 1.0) * (3.0 if protocol == 2 else 1.0)
        crossing = (2 if comm == Comm.ALL_REDUCE else 1) * (nodes - 1)
        steps = steps_of(comm, n)
        if comm in (Comm.BROADCAST, Comm.REDUCE):
            return total + steps * (inter if nodes > 1 else intra)
        return total + (steps - crossing) * max(intra, overhead) + crossing * inter

    def bandwidth(self, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
        rate = bus(group, graph, graph.intra)
        if protocol == c.LL:
            rate = min(most_of_ll(group, links), 0.5 * rate)
        elif protocol == c.LL128:
            rate = min(0.92 * rate, graph.channels * _LL128_PER_CHANNEL[links.generation][column(group)])
        return rate * group.ranks / steps_of(comm, group.ranks)

    def corrected_from(self, comm: Comm, group: Group, graph: ChannelSearch) -> Iterable[float]:
        return (64.0 * graph.channels * group.ranks,) if comm == Comm.ALL_REDUCE and group.nodes > 1 else ()

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
        plateau = comm == Comm.ALL_REDUCE and group.nodes > 1 and size >= 64.0 * graph.channels * group.ranks
        if plateau and protocol == c.SIMPLE:
            latency *= 1.9 if links.generation == "volta" else 1.4
        return latency, bandwidth

    def parts(self, call: ClosedCall) -> CallParts:
        comm, size, group, links, graph, protocol, node, net, _ = call
        n, nodes, p = group.ranks, group.nodes, c.PROTOCOLS.index(protocol)
        rounds = 2 if comm == Comm.ALL_REDUCE else 1
        steps, crossing = rounds * (n - 1), rounds * (nodes - 1)
        chained = comm in (Comm.BROADCAST, Comm.REDUCE)
        traffic = 1.0 if chained else rounds * (n - 1) / n
        limit = limit_of(group, links, graph, node) * on_wire(links)[p]
        inside = min(links.chain * node.ring[p] if group.per_node > 1 else math.inf, pass_buffers(graph, p, node.hop[p]), limit)
        outside, latency = math.inf, node.launch + (steps - crossing) * node.hop[p]
        if nodes > 1:
            nics = links.inter * graph.reach(links.nics) * net.ring * on_wire(links)[p]
            outside = min(nics, pass_buffers(graph, p, net.hop[p] + links.hop), limit)
            latency += net.launch + crossing * (net.hop[p] + links.hop)
        fill = 0.0
        if protocol == c.SIMPLE:
            # One slice per channel is in flight before the first result can leave; a ring's chunk is two slices of at most 1 MiB.
            # The constant was fitted with NCCL's default number of channels, so that number is used here.
            chunk = size / (graph.usual * (1 if chained else n))
            fill = (node.fill if nodes == 1 else net.fill) * min(_SLICE, chunk / 2) * graph.usual
        return fill_pipeline(latency, size * traffic, inside, outside, fill)

    def lower(self, call: CollectiveCall) -> Pattern:
        return ring(call)


RING = RingAlgorithm()
