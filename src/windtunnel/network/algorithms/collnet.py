"""CollNet (SHARP): the fabric's switches add. Each node's heads send the buffer up once and receive the sum once.

Direct: every GPU of a node sends each head its part; each head uses its own NIC. Chain: like a tree's chain inside the
node, with one head per channel. Leaf switches add the data of their nodes, a switch above them adds the leaves (NCCL 2.30.7,
`src/device/all_reduce.h`; reduction tree as in the SHARP paper, Graham et al. 2016).

Numbers: the switch of leaf group l and head h is n + nodes + l * heads + h; above several leaf groups, after all of those, one a
head.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from windtunnel.base.errors import SpecError
from windtunnel.network.algorithm import ClosedCall, CollectiveAlgorithm
from windtunnel.network.algorithms.pattern import Cargo, CollectiveCall, Pattern, cut, deps, fill_lanes
from windtunnel.network.closed.cost import CallParts, fill_pipeline
from windtunnel.network.closed.fitted import NodeConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.network.nccl.settings import Settings
from windtunnel.workload.ops import Comm


def heads_of(call: CollectiveCall) -> list[int]:
    """Local ranks that send to the fabric."""
    heads = max(1, min(call.nics, call.per_node))
    return [head * call.per_node // heads for head in range(heads)]


def collnet_pattern(call: CollectiveCall, direct: bool) -> Pattern:  # long: ends in a column a line
    """Lanes of an all-reduce through the fabric's switches."""
    if call.comm != Comm.ALL_REDUCE or call.nodes < 2 or call.ranks % call.per_node:
        raise SpecError("algorithm", "collnet", "an all_reduce over several nodes with as many ranks each")
    n, here, nodes, channels = call.ranks, call.per_node, call.nodes, call.channels
    heads = heads_of(call)
    leaves = call.leaves or (0,) * nodes
    groups = sorted(set(leaves))
    parts = len(heads) if direct else 1
    chunk, loops = cut(call.size, channels * parts, _chunk(call, parts, 1 if direct else here))
    rows: list[tuple[int, int, int, bool]] = []  # src, dst, part, adds
    after: list[tuple[int, int]] = []
    starts = [0]

    def lane(src: int, dst: int, part: int, adds: bool, waits: list[int]) -> int:
        after.extend((len(rows), other) for other in waits)
        rows.append((src, dst, part, adds))
        return len(rows) - 1

    for channel in range(channels):
        for part in range(parts):
            at = part if direct else channel % len(heads)
            local = heads[at]
            # Local ranks from the head on: all connected to it (direct), or one after the other (chain).
            order = [(local + i) % here for i in range(here)]
            up: dict[int, list[int]] = {group: [] for group in groups}
            for node in range(nodes):
                base = node * here
                waits: list[int] = []
                for i in range(here - 1, 0, -1):
                    sent = lane(base + order[i], base + order[0 if direct else i - 1], part, True, [] if direct else waits)
                    waits = [*waits, sent] if direct else [sent]
                leaf = n + nodes + groups.index(leaves[node]) * len(heads) + at
                up[leaves[node]].append(lane(base + local, leaf, part, True, waits))
            if len(groups) > 1:
                top = n + nodes + len(groups) * len(heads) + at
                sums = [lane(n + nodes + k * len(heads) + at, top, part, True, up[group]) for k, group in enumerate(groups)]
                up = {group: [lane(top, n + nodes + k * len(heads) + at, part, False, sums)] for k, group in enumerate(groups)}
            for node in range(nodes):
                base = node * here
                leaf = n + nodes + groups.index(leaves[node]) * len(heads) + at
                received = lane(leaf, base + local, part, False, up[leaves[node]])
                for i in range(1, here):
                    sent = lane(base + order[0 if direct else i - 1], base + order[i], part, False, [received])
                    received = received if direct else sent
        starts.append(len(rows))
    lanes = len(rows)
    table, on = np.array(rows, dtype=np.int64), np.array(after, dtype=np.int64).reshape(-1, 2)
    dep_start, dep_lane, lead = deps(lanes, on[:, 0], on[:, 1], 0)
    channel_of = np.repeat(np.arange(channels, dtype=np.int32), np.diff(starts))
    bytes_ = np.full(lanes, chunk * loops, dtype=np.int64)
    inside, between = (2 if direct else 2 * (here - 1)) if here > 1 else 0, 4 if len(groups) > 1 else 2

    def carries(lane: int, slice: int) -> Cargo:
        return (int((channel_of[lane] * loops + slice) * parts + table[lane, 2]),), bool(table[lane, 3])

    def seconds_alone(local: float, net: float) -> float:
        return (inside * local + between * net + (loops - 1) * max(local if inside else 0.0, net)) / loops

    return Pattern(
        table[:, 0].astype(np.int32),
        table[:, 1].astype(np.int32),
        bytes_,
        np.full(lanes, chunk, dtype=np.int64),
        fill_lanes(lanes, 8),
        fill_lanes(lanes, 0),
        channel_of,
        bytes_.astype(np.float64),
        dep_start,
        dep_lane,
        lead,
        inside,
        between,
        seconds_alone,
        channels * loops * parts,
        carries,
        lambda piece: 0,
    )


def _chunk(call: CollectiveCall, parts: int, levels: int) -> float:
    """Bytes of a slice: a step, halve_all_reduce while too few slices would be in flight (`calcCollChunking`)."""
    chunk = min(call.step, 256 * 1024.0)
    for times, least in ((64, 128), (8, 64), (8, 32)):
        while call.size / (call.channels * parts * chunk) < levels * times and chunk > least * 1024:
            chunk /= 2
    return chunk


class CollNet(CollectiveAlgorithm):
    """What both share."""

    tuned = True
    closed_form = True
    adds_in_switches = True

    def is_allowed(self, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
        return links.sharp and settings.collnet and group.nodes > 1 and comm == Comm.ALL_REDUCE

    @abstractmethod
    def steps(self, ppn: int) -> int:
        """Hops inside a node of `ppn` ranks."""

    @abstractmethod
    def inside_rate(self, ppn: int, links: GroupLinks, node: NodeConstants) -> float:
        """B/s that the links inside a node let through."""

    def parts(self, call: ClosedCall) -> CallParts:
        """SHARP: the switches add, so a node sends the buffer once and receives the sum once."""
        _, size, group, links, graph, _, node, net, _ = call
        ppn = group.per_node
        inside = min(self.inside_rate(ppn, links, node), graph.limit)
        outside = min(links.inter * graph.reach(links.nics) * net.ring, graph.limit)
        latency = node.launch + self.steps(ppn) * node.hop[2] + net.launch + 2 * (net.hop[2] + links.hop)
        return fill_pipeline(latency, size, inside, outside, net.nvls_fill * min(graph.usual * c.STEP_BYTES[c.SIMPLE], size / 2))

    def adds_in_fabric(self, group: Group) -> bool:
        return True
