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

from windtunnel.network.algorithm import ALGORITHMS, MESSAGES, ClosedCall
from windtunnel.network.closed.fitted import SENDS, NetConstants, NodeConstants, SendConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.workload.ops import Comm

_ON_WIRE_RCCL = (0.5, 56.0 / 64.0, 1.0)
"""Data per byte sent, as `DATA_ON_WIRE` of NCCL: RCCL's LL128 gives 8 of 64 bytes to flags (its `device.h`)."""


MADE_OF_SENDS = (Comm.ALL_TO_ALL, Comm.SEND_RECV, Comm.GATHER, Comm.SCATTER)
"""Calls that are single messages, whatever the algorithm."""


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
    chosen = ALGORITHMS[MESSAGES if comm in MADE_OF_SENDS else algorithm]
    parts: CallParts = chosen.parts(ClosedCall(comm, size, group, links, graph, protocol, node, net, sends))
    return parts


def fill_pipeline(latency: float, moved: float, inside: float, outside: float, fill: float) -> CallParts:
    """`moved` bytes that pass the links inside nodes and those between them at these rates, and then `fill` bytes more."""
    return CallParts(latency, moved / inside, moved / outside, fill / min(inside, outside))


def limit_of(group: Group, links: GroupLinks, graph: ChannelSearch, node: NodeConstants) -> float:
    """B/s of a GPU that its channels move together, where fewer run than by NCCL's own rules.

    Inside a domain a channel moves what it copies, or its share of a ring's rate if that is more; between domains what NCCL's
    search assigns to it.
    """
    if graph.running >= graph.usual or group.nodes > 1 or math.isinf(node.channel):
        return graph.limit
    return min(graph.limit, graph.running * max(node.channel, node.ring[2] * links.whole / graph.usual))


def pass_buffers(graph: ChannelSearch, protocol: int, hop: float) -> float:
    """B/s that the buffers of the running channels let through: what they hold, once in a hop's time."""
    return graph.running * graph.windows[protocol] / hop


def on_wire(links: GroupLinks) -> tuple[float, float, float]:
    """Data per byte sent, by protocol."""
    return c.DATA_ON_WIRE if links.nvidia else _ON_WIRE_RCCL
