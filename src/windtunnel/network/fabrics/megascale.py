"""MegaScale's fabric: three tiers of 64 x 400 Gb/s switches, 32 ports down and 32 up, every down port of a ToR split in 2 x 200
Gb/s.

Jiang et al., "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs", NSDI 2024, section 3.6: eight 200
Gb/s NICs of a server on eight ToRs, so 64 servers below a set of eight; an up-link carries twice a down-link, so that two flows
that hash to the same one do not slow each other. The paper does not say which ToRs share aggregation switches: here those of
one rail, 32 sets to a pod (what 64 ports give), and rails meet in the core.
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
class MegaScale(Builder):
    """Rails on ToRs of their own, an aggregation plane for each rail of a pod, one core."""

    NAME = "megascale"
    servers: int = count(64, "GPU servers", 1, 65_536)
    node: str = word("hgx-a100-80gb", "catalogue node: GPUs, NVLink, PCIe, NICs")
    tor_servers: int = count(64, "servers below one set of ToRs", 1, 1024)
    pod_sets: int = count(32, "sets of ToRs below one set of aggregation switches", 1, 512)
    uplinks: int = count(32, "up-links of a ToR and of an aggregation switch", 1, 512)
    link: float = rate("400Gb/s", "an up-link, each way")
    latency: float = time("700ns", "every cable outside servers, one way, with the switch that it enters")

    def build(self) -> Graph:
        columns = Columns()
        inside, nic_rate = node_of(self.node, f"{self.NAME}.node")
        servers = add_servers(columns, inside, self.servers)
        tors = leaves(columns, servers.nics, self.tor_servers, True, nic_rate, self.latency, "tor")
        planes = []
        for pod, first in enumerate(range(0, len(tors), self.pod_sets)):
            rails = tors[first : first + self.pod_sets].T  # [rails, sets]
            planes.append(spines(columns, rails, self.uplinks, self.link, self.latency, name=f"pod{pod}.agg"))
        cores(columns, np.concatenate(planes), self.uplinks, self.link, self.latency)
        return ends(columns, servers)
