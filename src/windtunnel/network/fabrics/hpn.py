"""Alibaba HPN 7.0: rail-optimised, a NIC's two ports on two ToRs, and (dual plane) each port in an aggregation plane of its own.

Qian et al., "Alibaba HPN: A Data Center Network for Large Language Model Training", SIGCOMM 2024: segments of 128 servers (1
024 GPUs), NICs of 2 x 200 Gb/s, ToRs with 128 x 200 Gb/s down and 60 x 400 Gb/s up, 15 segments a pod, 120 aggregation switches
a pod, eight up-links of each to the core (15:1). Same counts in SimAI's template. In the single plane all ToRs reach all
aggregation switches, so an up-link is split in two halves.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.clos import cores, leaves, spines
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import Builder, count, rate, time, word
from windtunnel.network.fabrics.server import add_servers, ends, node_of


@dataclass(frozen=True)
class Hpn(Builder):
    """Dual-ToR rails, one or two aggregation planes, a core if there are several pods."""

    NAME = "hpn"
    servers: int = count(128, "GPU servers", 1, 65_536)
    planes: int = count(2, "aggregation planes", 1, 2)
    node: str = word("hgx-h100", "catalogue node: GPUs, NVLink, PCIe; a NIC's rate is split over its two ports")
    segment_servers: int = count(128, "servers below one set of ToRs", 1, 1024)
    pod_segments: int = count(15, "segments below one set of aggregation switches", 1, 256)
    uplinks: int = count(60, "up-links of a ToR", 1, 512)
    core_uplinks: int = count(8, "up-links of an aggregation switch", 1, 512)
    link: float = rate("400Gb/s", "an up-link, each way")
    latency: float = time("500ns", "every cable outside servers, one way, with the switch that it enters")

    def build(self) -> Graph:
        columns = Columns()
        inside, nic_rate = node_of(self.node, f"{self.NAME}.node")
        servers = add_servers(columns, inside, self.servers)
        tors = [
            leaves(columns, servers.nics, self.segment_servers, True, nic_rate / 2, self.latency, f"tor{port}-")
            for port in range(2)
        ]
        if self.planes == 2:
            planes = [(tors[0], self.uplinks, self.link, "0-"), (tors[1], self.uplinks, self.link, "1-")]
        else:
            planes = [(np.concatenate(tors, axis=1), 2 * self.uplinks, self.link / 2, "")]
        for switches, aggs, up_rate, tag in planes:
            rows = [switches[i : i + self.pod_segments].reshape(1, -1) for i in range(0, len(switches), self.pod_segments)]
            pods = [
                spines(columns, row, aggs, up_rate, self.latency, name=f"agg{tag}" if len(rows) == 1 else f"pod{p}.agg{tag}")
                for p, row in enumerate(rows)
            ]
            if len(pods) > 1:
                cores(columns, np.concatenate(pods), self.core_uplinks, self.link, self.latency, name=f"core{tag}")
        return ends(columns, servers)
