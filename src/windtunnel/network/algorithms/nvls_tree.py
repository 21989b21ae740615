"""NVLSTree: the NVSwitch of each node adds and copies, and sums go up and down NCCL's double binary tree between nodes."""

from __future__ import annotations

import math

from windtunnel.base.errors import SpecError
from windtunnel.network.algorithms.nvls import Chunks, Switched, switched_pattern
from windtunnel.network.algorithms.pattern import CollectiveCall, Pattern
from windtunnel.network.algorithms.tuning import Latencies, column
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.network.nccl.settings import Settings
from windtunnel.workload.ops import Comm

_KIB = 2.0**10
_CHUNKS: Chunks = ((256 * _KIB, 32.0), (128 * _KIB, 16.0), (64 * _KIB, 4.0), (32 * _KIB, 1.0))
_PER_CHANNEL: dict[str, c.Triple] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (0.0, 57.7, 45.5),
    "blackwell": (0.0, 96.0, 80.0),
}


class NvlsTree(Switched):
    number = 5
    known = Latencies((0.0, 0.0, 0.0), nvlink=(0.0, 0.0, 25.0), pci=(0.0, 0.0, 0.0), net=(0.0, 0.0, 20.9))

    def chunks(self, nodes: int) -> Chunks:
        return _CHUNKS if nodes < 4 else _CHUNKS[2:]

    def is_allowed(self, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch, settings: Settings) -> bool:
        return self.has_switches(group, links, graph, settings) and comm == Comm.ALL_REDUCE and group.nodes > 1

    def latency(self, protocol: int, comm: Comm, group: Group, links: GroupLinks) -> float:
        intra, inter = self.known.near_hop(protocol, links), self.known.far_hop(protocol, links)
        return self.known.base[protocol] + intra + 2 * math.log2(group.nodes) * inter

    def bandwidth(self, protocol: str, comm: Comm, group: Group, links: GroupLinks, graph: ChannelSearch) -> float:
        most = _PER_CHANNEL[links.generation][column(group)]
        return self.switch_rate(most, 2.0 if group.nodes <= 2 else 1.0, comm, group, links, graph)

    def crossings(self, nodes: int) -> float:
        return min(2.0, nodes - 1.0)

    def lower(self, call: CollectiveCall) -> Pattern:
        """All-reduce over several nodes with as many ranks each."""
        if call.comm != Comm.ALL_REDUCE or call.nodes < 2 or call.ranks % call.per_node:
            raise SpecError("algorithm", "nvls_tree", "an all_reduce over several nodes with as many ranks each")
        return switched_pattern(call, self.chunks(call.nodes))


NVLS_TREE = NvlsTree()
