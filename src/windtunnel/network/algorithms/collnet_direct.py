"""CollNet, direct: every GPU of a node sends each head its part; see `collnet.py`."""

from __future__ import annotations

import math

from windtunnel.network.algorithms.collnet import CollNet, collnet_pattern
from windtunnel.network.algorithms.pattern import CollectiveCall, Pattern
from windtunnel.network.algorithms.tuning import Latencies, halve_all_reduce
from windtunnel.network.closed.fitted import NodeConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.network.nccl.settings import Settings
from windtunnel.workload.ops import Comm

_LATENCY = Latencies((0.0, 0.0, 0.0), nvlink=(0.0, 0.0, 3.7), pci=(0.0, 0.0, 3.7), net=(0.0, 0.0, 31.0))


class CollNetDirect(CollNet):
    number = 2
    spellings = ("collnet",)

    def is_allowed(self, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
        return super().is_allowed(comm, group, links, graph, settings) and links.nvls

    def latency(self, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
        ppn, intra, inter = group.per_node, _LATENCY.near_hop(protocol, links), _LATENCY.far_hop(protocol, links)
        return _LATENCY.base[protocol] + 2 * (min(1, ppn - 1) * intra + (ppn - 1) * 0.4) + inter

    def bandwidth(self, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
        factor = group.per_node / graph.channels
        new = 0.85 if links.generation in ("hopper", "blackwell") else 1.0
        return halve_all_reduce(graph.channels * graph.tree / (factor - (factor - 1.0) / 2.0) * new, comm)

    def steps(self, ppn: int) -> int:
        return 2

    def inside_rate(self, ppn: int, links: GroupLinks, node: NodeConstants) -> float:
        return links.intra * node.ring[2] / (2 * (ppn - 1) / ppn) if ppn > 1 else math.inf

    def lower(self, call: CollectiveCall) -> Pattern:
        """All-reduce; the heads are as many as the call's NICs in a node."""
        return collnet_pattern(call, direct=True)


COLLNET_DIRECT = CollNetDirect()
