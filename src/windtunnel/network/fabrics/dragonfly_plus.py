"""Dragonfly+ (Megafly): groups of leaves and spines, joined by global cables between spines; Shpiner et al., HiPINEB 2017."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.clos import spines
from windtunnel.network.fabrics.columns import Columns, numbered_names
from windtunnel.network.fabrics.dragonfly import global_cables
from windtunnel.network.fabrics.parameters import MOST_NODES, Builder, count, rate, time


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
