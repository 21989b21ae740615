"""Dragonfly: groups of fully joined routers, groups joined by global cables; Kim, Dally, Scott and Abts, ISCA 2008.

Hosts are numbered router by router, group by group. Routes are minimal (at most local, global, local); the packet engine's
adaptive routing chooses among minimal ones too.

Dragonfly+ (Megafly): groups of leaves and spines, joined by global cables between spines; Shpiner et al., HiPINEB 2017.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.clos import spines
from windtunnel.network.fabrics.columns import Columns, numbered_names
from windtunnel.network.fabrics.parameters import MOST_NODES, Builder, count, rate, time


@dataclass(frozen=True)
class Dragonfly(Builder):
    """a routers a group, each with p hosts and h global cables; balanced where a = 2p = 2h."""

    NAME = "dragonfly"
    p: int = count(4, "hosts of a router", 1, 256)
    a: int = count(8, "routers of a group", 1, 256)
    h: int = count(4, "global cables of a router", 1, 256)
    groups: int = count(0, "groups; 0: as many as one global cable between each two allows, a h + 1", 0, 65_536)
    link: float = rate("400Gb/s", "every cable, each way")
    latency: float = time("500ns", "cables inside a group and to hosts, one way, with the router that they enter")
    global_latency: float = time("1us", "cables between groups")

    def build(self) -> Graph:
        groups = self.count_groups()
        if groups * self.a * (self.p + 1) > MOST_NODES:
            raise self.wrong("groups", f"a graph of at most {MOST_NODES} nodes")
        columns = Columns()
        hosts = columns.nodes(NodeKind.HOST, numbered_names("host", groups * self.a * self.p))
        routers = self.join_switches(columns)
        columns.cables(hosts, np.repeat(routers.ravel(), self.p), self.link, self.latency)
        return columns.graph(hosts)

    def count_groups(self) -> int:
        """Groups of the fabric."""
        return self.groups or self.a * self.h + 1

    def join_switches(self, columns: Columns, share: float = 1.0) -> Int32s:
        """Adds the routers [groups, a] and their cables, which carry `share` of their rate."""
        groups = self.count_groups()
        routers = columns.nodes(NodeKind.SWITCH, numbered_names("router", groups, self.a)).reshape(groups, self.a)
        one, two = np.triu_indices(self.a, 1)
        columns.cables(routers[:, one], routers[:, two], self.link * share, self.latency, 0)
        a, b = global_cables(self, routers, self.h)
        columns.cables(a, b, self.link * share, self.global_latency, 1)
        return routers


def global_cables(builder: Builder, routers: Int32s, h: int) -> tuple[Int32s, Int32s]:
    """Ends of the global cables between `routers` [groups, r], h ports each: every two groups get the same number of them."""
    groups, width = routers.shape
    if groups == 1:
        return routers[0, :0], routers[0, :0]
    each = width * h // (groups - 1)
    if each < 1:
        raise builder.wrong("groups", f"at most {width * h + 1}, one more than the global cables of a group")
    ports = np.repeat(routers, h, axis=1)
    one, two = np.triu_indices(groups, 1)
    cable = np.arange(each)
    # a group numbers its peers without itself: to a later group j it is peer j - 1, to an earlier one peer i
    return ports[one[:, None], (two[:, None] - 1) * each + cable].ravel(), ports[two[:, None], one[:, None] * each + cable].ravel()


@dataclass(frozen=True)
class DragonflyPlus(Builder):
    """Hosts on leaves; every leaf of a group joined to every spine of it; spines joined to other groups."""

    NAME = "dragonfly_plus"
    p: int = count(8, "hosts of a leaf", 1, 256)
    leaves: int = count(8, "leaves of a group", 1, 256)
    spines: int = count(8, "spines of a group", 1, 256)
    h: int = count(8, "global cables of a spine", 1, 256)
    groups: int = count(4, "groups; 0: as many as one global cable between each two allows, spines x h + 1", 0, 65_536)
    link: float = rate("400Gb/s", "every cable, each way")
    latency: float = time("500ns", "cables inside a group and to hosts, one way, with the switch that they enter")
    global_latency: float = time("1us", "cables between groups")

    def build(self) -> Graph:
        groups = self.count_groups()
        if groups * (self.leaves * (self.p + 1) + self.spines) > MOST_NODES:
            raise self.wrong("groups", f"a graph of at most {MOST_NODES} nodes")
        columns = Columns()
        hosts = columns.nodes(NodeKind.HOST, numbered_names("host", groups * self.leaves * self.p))
        leaf = self.join_switches(columns)
        columns.cables(hosts, np.repeat(leaf.ravel(), self.p), self.link, self.latency)
        return columns.graph(hosts)

    def count_groups(self) -> int:
        """Groups of the fabric."""
        return self.groups or self.spines * self.h + 1

    def join_switches(self, columns: Columns, share: float = 1.0) -> Int32s:
        """Adds leaves [groups, leaves], spines and the cables among them, which carry `share` of their rate; the leaves."""
        groups = self.count_groups()
        leaf = columns.nodes(NodeKind.SWITCH, numbered_names("leaf", groups, self.leaves)).reshape(groups, self.leaves)
        spine = spines(columns, leaf, self.spines, self.link * share, self.latency)
        a, b = global_cables(self, spine, self.h)
        columns.cables(a, b, self.link * share, self.global_latency, 1)
        return leaf
