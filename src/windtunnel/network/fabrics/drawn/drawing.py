"""What draws the switches of a job's fabric: dragonfly, dragonfly+, or a graph from a file.

Servers on a dragonfly or dragonfly+: one after the other on the ports of a switch, switch by switch, group by group.

A server whose NICs do not fit on one switch takes the next ones as well, and no server lies in two groups. Its ports that are left
stay empty.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from windtunnel.base.arrays import Int32s
from windtunnel.base.errors import SpecError
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.dragonfly import Dragonfly, DragonflyPlus
from windtunnel.network.fabrics.drawn.levels import Levels

if TYPE_CHECKING:
    from windtunnel.network.fabrics.drawn.file_ports import FilePorts
    from windtunnel.spec.machine.cluster import Cluster, Fabric

from dataclasses import dataclass

import numpy as np

PATH = "cluster.fabric.builder"
_BUILDERS: tuple[type[Dragonfly] | type[DragonflyPlus], ...] = (Dragonfly, DragonflyPlus)


class DrawnFabric(Protocol):
    """Switches, and the port of each NIC of each server."""

    def __hash__(self) -> int:
        """A key of caches."""

    @property
    def servers(self) -> int:
        """Servers that the ports are enough for."""

    @property
    def more(self) -> str:
        """What to set for more of them."""

    def attach(self, columns: Columns, nics: Int32s, rate: float, share: float) -> None:
        """Adds the switches, and cables NICs [servers, n] of `rate` B/s to them; cables carry `share` of their line rate."""

    def levels(self, servers: int, rate: float) -> Levels:
        """What the closed form knows of it, for so many servers with NICs of `rate` B/s."""


def is_drawn(fabric: Fabric) -> bool:
    """Whether a builder or a file draws the fabric of a job."""
    name = (fabric.builder or "").partition(":")[0]
    return name in {one.NAME for one in _BUILDERS} or _file_of(fabric) is not None


def drawing_of(cluster: Cluster) -> DrawnFabric | None:
    """The drawing of the cluster's fabric; None for leaves and spines.

    SpecError for a graph without a builder, and for one whose ports are not those of the cluster's servers; FileError for a file.
    """
    fabric, nic = cluster.fabric, cluster.node.nic
    if not is_drawn(fabric):
        if fabric.topology == "graph":
            raise SpecError(PATH, fabric.builder, "dragonfly:…, dragonfly_plus:… or file:PATH, for topology graph")
        return None
    if nic is None:
        raise SpecError("cluster.node.nic", None, f"NICs, which {fabric.builder} joins")
    path = _file_of(fabric)
    if path is None:
        return _of_builder(fabric.builder or "", nic.count)
    ports = _of_file(path, nic.count)
    ports.check_cables(nic.bandwidth, fabric.nic_ports)
    return ports


def check_room(cluster: Cluster, servers: int) -> None:
    """SpecError where the fabric's ports are not enough for so many servers: how many fit, and what to set."""
    drawing = drawing_of(cluster)
    if drawing is None or servers <= drawing.servers:
        return
    fit, each = drawing.servers, cluster.node.gpus
    if fit == 0:
        raise SpecError(
            PATH, cluster.fabric.builder, f"room for a server of {cluster.node.nic.count if cluster.node.nic else 0} NICs",
            f"Not one fits. {drawing.more}.",
        )  # fmt: skip
    raise SpecError(
        PATH, cluster.fabric.builder, f"ports for {servers} servers of {cluster.node.nic.count if cluster.node.nic else 0} NICs",
        f"{fit} of them fit, with {fit * each} GPUs. {drawing.more}, or use at most {fit * each} GPUs.",
    )  # fmt: skip


def levels_of(cluster: Cluster) -> Levels:
    """What the closed form knows of the cluster's fabric. Raises as `drawing_of`."""
    fabric, node = cluster.fabric, cluster.node
    drawing = drawing_of(cluster)
    if drawing is None or node.nic is None:
        hop = fabric.hop_latency
        return Levels(fabric.leaf_nodes, fabric.pod_nodes, fabric.oversubscription, fabric.pod_oversubscription, 2 * hop, 4 * hop)
    servers = min(drawing.servers, -(-cluster.gpus // node.gpus))
    devices, rate = node.ways_out
    return _levels(drawing, max(1, servers), devices * rate / node.nic.count)


@lru_cache(maxsize=64)
def _levels(drawing: DrawnFabric, servers: int, rate: float) -> Levels:
    return drawing.levels(servers, rate)


def _file_of(fabric: Fabric) -> str | None:
    text = fabric.builder or ""
    if text.startswith("file:"):
        return text.removeprefix("file:")
    return text if text.endswith((".toml", ".json")) else None


@lru_cache(maxsize=64)
def _of_builder(text: str, nics: int) -> GroupPorts:
    name, _, rest = text.partition(":")
    kind = next(one for one in _BUILDERS if name == one.NAME)
    return GroupPorts(kind.of_text(rest, PATH), nics)


@lru_cache(maxsize=64)
def _of_file(path: str, nics: int) -> FilePorts:
    """A file is read once in a process, as all caches of calls on it assume."""
    from windtunnel.network.fabrics.drawn.file_ports import ports_of
    from windtunnel.network.fabrics.drawn.text_topology import load_file

    return ports_of(load_file(path), nics, path)


@dataclass(frozen=True)
class GroupPorts:
    """Ports of the groups of `builder`, for servers with `nics` NICs each."""

    builder: Dragonfly | DragonflyPlus
    nics: int

    @property
    def switches(self) -> int:
        """Switches of a group that have ports for hosts."""
        return self.builder.a if isinstance(self.builder, Dragonfly) else self.builder.leaves

    @property
    def of_switch(self) -> int:
        """Servers on one switch; 0 if a server takes several."""
        return self.builder.p // self.nics

    @property
    def switches_of_server(self) -> int:
        """Switches that a server is cabled to."""
        return -(-self.nics // self.builder.p)

    @property
    def of_group(self) -> int:
        """Servers of a group."""
        return self.switches * self.of_switch if self.of_switch else self.switches // self.switches_of_server

    @property
    def servers(self) -> int:
        return self.builder.count_groups() * self.of_group

    @property
    def more(self) -> str:
        name = "a" if isinstance(self.builder, Dragonfly) else "leaves"
        return f"Set a larger groups, p, h or {name}"

    def attach(self, columns: Columns, nics: Int32s, rate: float, share: float) -> None:
        switches = self.builder.join_switches(columns, share)
        server, nic = np.arange(len(nics))[:, None], np.arange(self.nics)
        group, place = server // self.of_group, server % self.of_group
        switch = place // self.of_switch + 0 * nic if self.of_switch else place * self.switches_of_server + nic // self.builder.p
        columns.cables(nics, switches[group, switch], rate * share, self.builder.latency)

    def levels(self, servers: int, rate: float) -> Levels:
        """No message takes more than the links to switches and groups that are in use, on shortest paths."""
        one = self.builder
        used = min(one.count_groups(), -(-servers // max(1, self.of_group)))
        ports = max(1, self.of_switch) * self.nics if self.of_switch else min(one.p, self.nics)
        plus = isinstance(one, DragonflyPlus)
        if isinstance(one, DragonflyPlus):
            up, outside = one.spines, one.spines * one.h
        else:
            here = (
                self.switches if used > 1 else min(self.switches, -(-servers * self.switches_of_server // max(1, self.of_switch)))
            )
            up, outside = max(1, here - 1 + (one.h if used > 1 else 0)), one.a * one.h
        between = outside // (one.count_groups() - 1) * (used - 1) if used > 1 else outside
        inside = 2 * one.latency if plus else one.latency if self.switches > 1 else 0.0
        far = (2 * one.latency if plus or self.switches > 1 else 0.0) + one.global_latency
        return Levels(
            max(1, self.of_switch),
            max(1, self.of_group),
            ports * rate / (up * one.link),
            max(1, self.of_group) * self.nics * rate / (max(1, between) * one.link),
            inside,
            far,
        )
