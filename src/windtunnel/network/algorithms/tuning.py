"""What algorithms share of NCCL's tuner (`ncclTopoTuneModel` of NCCL 2.30.7, `src/graph/tuning.cc`): microseconds and GB/s.

Triples of latencies are (LL, LL128, Simple), those of bandwidths (1 node, 2 nodes, 3 or more nodes) by GPU generation.
"""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.network.nccl.constants import Triple
from windtunnel.workload.ops import Comm

BY_PROTOCOL = ("LL", "LL128", "Simple")


class Latencies(NamedTuple):
    """Of an algorithm, us: without a hop, and of a hop over NVLink, PCIe and the network."""

    base: Triple
    nvlink: Triple
    pci: Triple
    net: Triple

    def near_hop(self, protocol: int, links: GroupLinks) -> float:
        """A hop inside a node."""
        return (self.nvlink if links.medium == "nvlink" else self.pci)[protocol]

    def far_hop(self, protocol: int, links: GroupLinks) -> float:
        """A hop between nodes."""
        stated = (links.hop + links.stated) * 1e6
        hop = self.net[protocol] + stated
        return hop + stated if protocol == 2 else hop


def column(group: Group) -> int:
    """The place in a triple by nodes."""
    return 0 if group.nodes == 1 else 1 if group.nodes == 2 else 2


def bus(group: Group, graph: ChannelSearch, near: float) -> float:
    """GB/s of all channels: of the speed `near` on up to two nodes."""
    return graph.channels * (graph.inter if group.nodes > 2 else near)


def most_of_ll(group: Group, links: GroupLinks) -> float:
    """The most that LL reaches."""
    return _LL_MAX[links.generation if group.nodes == 1 else "ampere" if links.amd else "volta"][column(group)]


def steps_of(comm: Comm, n: int) -> int:
    """Steps of a ring."""
    if comm == Comm.ALL_REDUCE:
        return 2 * (n - 1)
    return n - 1 if comm in (Comm.ALL_GATHER, Comm.REDUCE_SCATTER) else n


def halve_all_reduce(rate: float, comm: Comm) -> float:
    """GB/s of an algorithm that moves the bytes of an all-reduce twice."""
    return rate if comm != Comm.ALL_REDUCE else rate * 0.5


_LL_MAX: dict[str, Triple] = {
    "volta": (39.0, 39.0, 20.4),
    "ampere": (87.7, 22.5, 19.0),
    "hopper": (141.0, 45.0, 35.0),
    "blackwell": (282.0, 90.0, 70.0),
}
