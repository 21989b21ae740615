"""k-ary fat tree of plain hosts: two tiers (leaf and spine) or three (ToR, aggregation, core); Al-Fares et al., SIGCOMM 2008.

Hosts are numbered ToR by ToR, pod by pod. With an oversubscription of s a switch has as few up-links as carry 1/s of what is
below it, and their rate is lowered so that the ratio is exact (1.16 with k=16: seven up-links at 98.5 % of the line rate).
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.clos import cores, spines, up_links
from windtunnel.network.fabrics.columns import Columns, numbered_names
from windtunnel.network.fabrics.parameters import MOST_NODES, Builder, count, rate, ratio, time


@dataclass(frozen=True)
class FatTree(Builder):
    """Plain hosts below two or three tiers of k-port switches; k³/4 hosts (three tiers) or k²/2 (two)."""

    NAME = "fat_tree"
    k: int = count(16, "ports of a switch, even", 2, 256)
    tiers: int = count(3, "2: leaf and spine; 3: ToR, aggregation, core", 2, 3)
    pods: int = count(0, "pods that are built (of two tiers: leaves); 0: all k", 0, 256)
    oversubscription: float = ratio("1", "bandwidth below a ToR over that above it")
    core_oversubscription: float = ratio("1", "the same of an aggregation switch")
    link: float = rate("400Gb/s", "every cable, each way")
    latency: float = time("1us", "every cable, one way, with the switch that it enters")

    def build(self) -> Graph:
        if self.k % 2:
            raise self.wrong("k", "an even number")
        half, pods = self.k // 2, self.pods or self.k
        if pods > self.k:
            raise self.wrong("pods", f"at most k = {self.k}")
        tors = pods * half if self.tiers == 3 else pods
        if tors * half > MOST_NODES:
            raise self.wrong("k", f"a tree of at most {MOST_NODES} hosts")
        columns = Columns()
        hosts = columns.nodes(NodeKind.HOST, numbered_names("host", tors * half))
        leaf = columns.nodes(NodeKind.SWITCH, numbered_names("tor", tors))
        columns.cables(hosts, leaf[np.arange(len(hosts)) // half], self.link, self.latency)
        up, up_rate = up_links(half * self.link, self.link, self.oversubscription)
        if self.tiers == 2:
            spines(columns, leaf.reshape(1, -1), up, up_rate, self.latency)
        else:
            agg = spines(columns, leaf.reshape(pods, half), up, up_rate, self.latency, name="agg")
            if pods > 1:
                core_up, core_rate = up_links(half * up_rate, self.link, self.core_oversubscription)
                cores(columns, agg, core_up, core_rate, self.latency)
        return columns.graph(hosts)
