"""Switches of a job's fabric that a builder or a file draws, in place of leaves and spines.

What draws the switches of a job's fabric: dragonfly, dragonfly+, or a graph from a file.

Servers on a dragonfly or dragonfly+: one after the other on the ports of a switch, switch by switch, group by group.

A server whose NICs do not fit on one switch takes the next ones as well, and no server lies in two groups. Its ports that are left
stay empty.

Servers on a graph from a file: NIC after NIC of the file, or host after host, is a NIC of the job's servers.

Only the fabric is taken from the file: switches that are in no server, their cables, and the cables of NICs. The inside of a server
is that of the cluster's node. Rates in the file are line rates.

What the closed form knows of a fabric: which nodes are near, how thin the links out of them are, and how far the others are.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.engine.routes import RouteOptions, route
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.dragonfly import Dragonfly, DragonflyPlus

if TYPE_CHECKING:
    from windtunnel.spec.machine import Cluster, Fabric


@dataclass(frozen=True)
class Levels:
    """Consecutive nodes that share their first switches, and those that share a pod or a group of switches."""

    leaf_nodes: int
    pod_nodes: int
    oversubscription: float
    """Rate of a leaf's NICs over that of its links to other switches."""
    pod_oversubscription: float
    """The same of a pod."""
    near: float
    """Seconds of links between switches, for a message that leaves a leaf."""
    far: float
    """The same for one that leaves a pod."""


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
    from windtunnel.network.fabrics.text_topology import load_file

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


_MOST_LEAVES = 256
"""Sets of leaf switches among which the farthest pair is looked for: of more, as many are taken, evenly spread."""


def ports_of(graph: Graph, nics: int, path: str) -> FilePorts:
    """The ports of a file's graph for servers of `nics` NICs. SpecError for a file's servers with another number of them."""
    found = np.flatnonzero(graph.node_kind == NodeKind.NIC)
    if len(found):
        site = graph.node_site[found]
        _, first, of_site = np.unique(site, return_index=True, return_inverse=True)
        ports = found[np.lexsort((found, first[of_site]))]
        counts = np.bincount(of_site)
        if (site < 0).any() or (counts % nics).any():
            raise SpecError(
                f"{path}.nodes", f"{int(counts[np.argmax(counts % nics > 0)])} NICs in one server",
                f"{nics} NICs in each, as cluster.node.nic.count says", "site = N puts a NIC into server N.",
            )  # fmt: skip
    else:
        ports = np.unique(graph.endpoint)
    return FilePorts(graph, ports.astype(np.int32), nics, path)


@dataclass(frozen=True, eq=False)
class FilePorts:
    """`port` [P]: nodes of the file that stand for NICs, server by server."""

    graph: Graph
    port: Int32s
    nics: int
    path: str

    @property
    def servers(self) -> int:
        return len(self.port) // self.nics

    @property
    def more(self) -> str:
        return f"Add hosts or NICs to {self.path}"

    @cached_property
    def switch(self) -> Bools:
        """[nodes] switches of the fabric."""
        found: Bools = (self.graph.node_kind == NodeKind.SWITCH) & (self.graph.node_site < 0)
        return found

    @cached_property
    def number(self) -> Int64s:
        """[nodes] number of the port, -1 for other nodes."""
        found = np.full(self.graph.nodes, -1, np.int64)
        found[self.port] = np.arange(len(self.port))
        return found

    @cached_property
    def cables(self) -> Int64s:
        """Every second link of the fabric's cables, which are pairs of links."""
        first = np.arange(0, self.graph.links, 2)
        a, b = self.graph.link_from[first], self.graph.link_to[first]
        inside = (self.switch[a] | (self.number[a] >= 0)) & (self.switch[b] | (self.number[b] >= 0))
        apart = self.switch[a] | self.switch[b] | (self.graph.node_site[a] != self.graph.node_site[b])
        chosen: Int64s = first[inside & apart]
        return chosen

    def check_cables(self, rate: float, ports: int) -> None:
        """SpecError unless each NIC has `ports` cables that together carry `rate` B/s."""
        graph = self.graph
        a, b = graph.link_from[self.cables], graph.link_to[self.cables]
        ends = np.concatenate([self.number[a], self.number[b]])
        rates = np.tile(graph.link_rate[self.cables], 2)[ends >= 0]
        count = np.bincount(ends[ends >= 0], minlength=len(self.port))
        total = np.bincount(ends[ends >= 0], rates, len(self.port))
        wrong = np.flatnonzero(count != ports)
        if len(wrong):
            name = graph.name(int(self.port[wrong[0]]))
            raise SpecError(
                f"{self.path}.links", f"{int(count[wrong[0]])} cables to switches at {name}",
                f"{ports}, as cluster.fabric.nic_ports says", "A NIC is a host, or a node of kind nic in a server (site = N).",
            )  # fmt: skip
        wrong = np.flatnonzero(np.abs(total - rate) > 1e-3 * rate)
        if len(wrong):
            name, found = graph.name(int(self.port[wrong[0]])), float(total[wrong[0]])
            raise SpecError(
                "cluster.node.nic.bandwidth", f"{rate * 8e-9:g}Gb/s",
                f"{found * 8e-9:g}Gb/s, as the cables of {name} in {self.path}", "All NICs of a job have one rate.",
            )  # fmt: skip

    def attach(self, columns: Columns, nics: Int32s, rate: float, share: float) -> None:
        graph = self.graph
        kept = np.flatnonzero(self.switch)
        number = np.full(graph.nodes, -1, np.int64)
        number[kept] = columns.nodes(NodeKind.SWITCH, [graph.name(int(node)) for node in kept])
        used = self.port[: nics.size]
        number[used] = nics.ravel()[: len(used)]
        cable = self.cables
        cable = cable[(number[graph.link_from[cable]] >= 0) & (number[graph.link_to[cable]] >= 0)]
        columns.cables(
            number[graph.link_from[cable]],
            number[graph.link_to[cable]],
            graph.link_rate[cable] * share,
            graph.link_latency[cable],
            graph.link_axis[cable],
            np.stack([graph.link_up[cable], graph.link_up[cable + 1]], axis=1),
        )

    def levels(self, servers: int, rate: float) -> Levels:
        """Leaves are sets of first switches that consecutive servers share; the whole file is one pod."""
        leaf_nodes, leaf = self._leaves(servers)
        hop = self._farthest(leaf) if len(leaf) > 1 else 0.0
        return Levels(leaf_nodes, max(leaf_nodes, servers), self._least_oversubscription(servers), 1.0, hop, hop)

    def _leaves(self, servers: int) -> tuple[int, Int64s]:
        """(servers below each set of switches, the first server of every run of servers that share them)."""
        graph = self.graph
        a, b = graph.link_from[self.cables], graph.link_to[self.cables]
        below: list[set[int]] = [set() for _ in range(servers)]
        for one, two in ((a, b), (b, a)):
            at = np.flatnonzero((self.number[one] >= 0) & self.switch[two])
            for port, switch in zip(self.number[one[at]].tolist(), two[at].tolist(), strict=True):
                if port // self.nics < servers:
                    below[port // self.nics].add(switch)
        first = np.array([i for i in range(servers) if i == 0 or below[i] != below[i - 1]], np.int64)
        runs = np.diff(np.append(first, servers))
        return int(runs[:-1].min() if len(runs) > 1 else runs[0]), first

    def _least_oversubscription(self, servers: int) -> float:
        """Least of all leaf switches in use; 1 where there is one leaf switch, or it has no link to others."""
        graph = self.graph
        down, up = np.zeros(graph.nodes), np.zeros(graph.nodes)
        a, b = graph.link_from[self.cables], graph.link_to[self.cables]
        rate = graph.link_rate[self.cables]
        for one, two, works in ((a, b, graph.link_up[self.cables]), (b, a, graph.link_up[self.cables + 1])):
            port = self.number[two]
            np.add.at(down, one[(port >= 0) & (port < servers * self.nics)], rate[(port >= 0) & (port < servers * self.nics)])
            above = self.switch[one] & self.switch[two] & (works > 0)
            np.add.at(up, one[above], rate[above])
        leaf = np.flatnonzero((down > 0) & (up > 0) & self.switch)
        return float((down[leaf] / up[leaf]).min()) if len(leaf) else 1.0

    def _farthest(self, servers: Int64s) -> float:
        """Seconds of the links between switches from the first NIC of one of these servers to that of another, at most."""
        some = servers[:: max(1, -(-len(servers) // _MOST_LEAVES))]
        columns = Columns()
        nics = columns.nodes(NodeKind.HOST, [self.graph.name(int(node)) for node in self.port])
        self.attach(columns, nics, 0.0, 1.0)
        graph = columns.graph(nics)
        one, two = (side.ravel().astype(np.int32) * self.nics for side in np.meshgrid(some, some, indexing="ij"))
        one, two = one[one != two], two[one != two]
        paths = route(graph, one, two, np.zeros(len(one), np.uint64), RouteOptions())
        between = (graph.node_kind[graph.link_from] == NodeKind.SWITCH) & (graph.node_kind[graph.link_to] == NodeKind.SWITCH)
        seconds: Floats = np.where(between, graph.link_latency, 0.0)[paths.links]
        total = np.append(0.0, np.cumsum(seconds))
        return float((total[paths.start[1:]] - total[paths.start[:-1]]).max())
