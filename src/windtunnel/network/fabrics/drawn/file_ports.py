"""Servers on a graph from a file: NIC after NIC of the file, or host after host, is a NIC of the job's servers.

Only the fabric is taken from the file: switches that are in no server, their cables, and the cables of NICs. The inside of a server
is that of the cluster's node. Rates in the file are line rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s
from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.engine.routes import RouteOptions, route
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.drawn.levels import Levels

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
