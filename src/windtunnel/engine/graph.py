"""The link graph that network engines run on, and the links that flows take over it.

Nodes and directed links in columns, without any notion of topology. A cable is two links. A link is the output port of the node
that it leaves.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int16s, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, fields


class NodeKind(IntEnum):
    """The kind of a node; only drawings, routes inside a server and buffers depend on it."""

    SWITCH = 0
    HOST = 1
    GPU = 2
    NIC = 3
    PCIE = 4
    CPU = 5
    NVSWITCH = 6


@dataclass(frozen=True)
class Graph:
    """N nodes, L directed links, H endpoints (the numbers that flows name). SI units: B/s and seconds."""

    node_kind: Uint8s
    node_site: Int32s
    """[N] the server (or scale-up domain) that a node belongs to, -1 for the fabric between servers; a NIC belongs to its
    server."""
    link_from: Int32s
    link_to: Int32s
    link_rate: Floats
    link_latency: Floats
    """[L] propagation, and whatever fixed delay the receiving node adds."""
    link_axis: Int16s
    """[L] dimension of a torus or N-dimensional link, else -1."""
    link_up: Uint8s
    endpoint: Int32s
    nic_start: Int64s
    nics: Int32s
    """`nics[nic_start[h]:nic_start[h+1]]`: nodes of the NICs that endpoint h drives, nearest first; none if the endpoint sits on
    the fabric itself."""
    rail: Int32s
    """[H] index of the endpoint's rail, -1 for none."""
    names: tuple[str, ...] = ()
    """[N] labels; not passed to the core."""

    @cached_property
    def routes(self) -> dict[bytes, Paths]:
        """Routes of many flows that were found on this graph (`routes.route`)."""
        return {}

    @property
    def nodes(self) -> int:
        return len(self.node_kind)

    @property
    def links(self) -> int:
        return len(self.link_from)

    @property
    def endpoints(self) -> int:
        return len(self.endpoint)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Input of the core, by the names of cpp/fabric/graph.h."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "names"}

    def name(self, node: int) -> str:
        """Label of the node: its name, or its kind and number."""
        return self.names[node] if self.names else f"{NodeKind(int(self.node_kind[node])).name.lower()} {node}"


@dataclass(frozen=True)
class Paths:
    """Links of P paths: those of path p are `links[start[p]:start[p+1]]`, in order."""

    start: Int64s
    links: Int32s

    def __len__(self) -> int:
        return len(self.start) - 1
