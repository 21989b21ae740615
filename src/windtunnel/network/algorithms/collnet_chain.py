"""CollNet, chain: along a chain in each node, from its end to the head and back; see `collnet.py`."""

from __future__ import annotations

from windtunnel.network.algorithms.collnet import CollNet, collnet_pattern
from windtunnel.network.algorithms.pattern import CollectiveCall, Pattern
from windtunnel.network.algorithms.tuning import Latencies, halve_all_reduce
from windtunnel.network.closed.fitted import NodeConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.workload.ops import Comm

_LATENCY = Latencies((0.0, 0.0, 0.0), nvlink=(0.0, 0.0, 2.8), pci=(0.0, 0.0, 2.8), net=(0.0, 0.0, 30.0))


class CollNetChain(CollNet):
    number = 3

    def latency(self, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
        intra, inter = _LATENCY.near_hop(protocol, links), _LATENCY.far_hop(protocol, links)
        return _LATENCY.base[protocol] + 2 * (group.per_node - 1) * intra + inter

    def bandwidth(self, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
        return halve_all_reduce(graph.channels * graph.tree, comm)

    def steps(self, ppn: int) -> int:
        return 2 * (ppn - 1)

    def inside_rate(self, ppn: int, links: GroupLinks, node: NodeConstants) -> float:
        return links.intra * node.tree[2]

    def lower(self, call: CollectiveCall) -> Pattern:
        """All-reduce."""
        return collnet_pattern(call, direct=False)


COLLNET_CHAIN = CollNetChain()
