"""PAT: all-gather and reduce-scatter by shifted binomial trees, in log2 n rounds, for one GPU per node (NCCL from 2.23 on).

All-gather, far distances first: in the round of distance d a rank passes the chunks of the ranks 0, 2d, 4d, … behind it to the
rank d ahead, without wrapping around. Reduce-scatter runs the same trees backwards, near distances first.
"""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import ClosedCall, CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import ALL, Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.network.algorithms.tuning import Latencies, bus, halve_all_reduce
from windtunnel.network.closed.cost import CallParts, fill_pipeline
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.channels import ChannelSearch, log2_floor
from windtunnel.network.nccl.settings import Settings
from windtunnel.workload.ops import Comm


def pat(call: CollectiveCall) -> Pattern:
    """Lanes of an all-gather or reduce-scatter: for each channel n for each of the log2 n rounds."""
    if call.comm not in (Comm.ALL_GATHER, Comm.REDUCE_SCATTER) or call.nodes < call.ranks:
        raise SpecError("algorithm", "pat", "all_gather or reduce_scatter with one rank a node")
    n, channels, gathers = call.ranks, call.channels, call.comm == Comm.ALL_GATHER
    rounds = (n - 1).bit_length()
    distances = [1 << k for k in range(rounds)]
    if gathers:
        distances.reverse()
    counts = np.array([-(-(n - d) // (2 * d)) for d in distances], dtype=np.int64)  # chunks sent in a round
    part, pieces = cut(call.size, channels * n, call.step)  # a chunk, in as many parts as do not fit in a step
    together = max(1, int(call.step // (part * 1.0)))
    lanes, each = channels * rounds * n, rounds * n
    rank = np.tile(np.arange(n), channels * rounds)
    turn = np.tile(np.repeat(np.arange(rounds), n), channels)
    first = np.repeat(np.arange(channels) * each, each)
    sign = 1 if gathers else -1
    ahead = np.array(distances)[turn] * sign
    waits, on = [], []
    for earlier in range(rounds - 1):
        late = np.nonzero(turn > earlier)[0]
        waits.append(late)
        on.append(first[late] + earlier * n + (rank[late] - sign * distances[earlier]) % n)
    start, lane, lead = deps(lanes, np.concatenate([*waits, []]).astype(np.int64), np.concatenate([*on, []]).astype(np.int64), ALL)
    bytes_ = counts[turn] * pieces * part

    def carries(lane: int, slice: int) -> Cargo:
        channel, k, r = lane // each, lane % each // n, lane % n
        d, units = distances[k], int(counts[k]) * pieces
        chunks_sent = range(slice * together, min(units, (slice + 1) * together))
        # Behind the sender (all-gather), or behind the receiver, whose sums it passes on (reduce-scatter).
        roots = [(r - 2 * d * (u // pieces)) % n if gathers else (r - d - 2 * d * (u // pieces)) % n for u in chunks_sent]
        return [(channel * n + root) * pieces + u % pieces for root, u in zip(roots, chunks_sent, strict=True)], not gathers

    return Pattern(
        rank.astype(np.int32),
        ((rank + ahead) % n).astype(np.int32),
        bytes_,
        np.full(lanes, together * part, dtype=np.int64),
        fill_lanes(lanes, 8),
        turn.astype(np.int32),
        np.repeat(np.arange(channels, dtype=np.int32), each),
        np.full(lanes, (n - 1) * pieces * part, dtype=np.float64),
        start,
        lane,
        lead,
        0,
        rounds,
        lambda local, net: net,
        channels * n * pieces,
        carries,
        lambda piece: piece // pieces % n,
    )


_LATENCY = Latencies((8.0, 8.0, 8.0), nvlink=(0.0, 0.0, 4.0), pci=(0.0, 0.0, 4.0), net=(0.0, 0.0, 14.0))


class Pat(CollectiveAlgorithm):
    tuned = True
    number = 6
    closed_form = True

    def is_allowed(self, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
        return settings.pat and comm != Comm.ALL_REDUCE and group.per_node == 1 and group.nodes > 1

    def latency(self, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
        inter = _LATENCY.far_hop(protocol, links)
        return _LATENCY.base[protocol] + log2_floor(group.nodes) * inter / 3.5 + 2.8 * group.ranks

    def bandwidth(self, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
        return halve_all_reduce(bus(group, graph, graph.tree) * 0.75, comm)

    def parts(self, call: ClosedCall) -> CallParts:
        _, size, group, links, graph, _, node, net, _ = call
        latency = node.launch + net.launch + math.ceil(math.log2(group.ranks)) * (net.hop[2] + links.hop)
        rate = min(links.inter * graph.reach(links.nics) * net.ring, graph.limit)
        return fill_pipeline(latency, size * (group.ranks - 1) / group.ranks, math.inf, rate, 0.0)

    def lower(self, call: CollectiveCall) -> Pattern:
        return pat(call)


PAT = Pat()
