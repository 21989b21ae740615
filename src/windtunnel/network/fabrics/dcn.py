"""DCN+: a data-centre Clos for GPU servers, without rails: all NICs of a server on one ToR, or their two ports on a pair of
ToRs.

Counts as in SimAI's template (aliyun/SimAI, inputs/topo/gen_Topo_Template.py): 512 GPUs a pod, 64 NICs a ToR, with dual ToR 128
ports of 200 Gb/s a ToR, eight aggregation switches. That template joins each ToR to each aggregation switch by one 400 Gb/s
cable, which is oversubscription=8 here; Qian et al. (SIGCOMM 2024) describe DCN+, HPN's predecessor, as non-blocking inside the
pod, the default.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.clos import cores, leaves, spines, up_links
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import Builder, count, flag, rate, ratio, time, word
from windtunnel.network.fabrics.server import add_servers, ends, node_of


@dataclass(frozen=True)
class Dcn(Builder):
    """Servers below single or dual ToRs, aggregation switches, a core if there are several pods."""

    NAME = "dcn"
    servers: int = count(64, "GPU servers", 1, 65_536)
    dual_tor: bool = flag("no", "both ports of a NIC on ToRs of their own")
    node: str = word("hgx-h100", "catalogue node: GPUs, NVLink, PCIe, NICs")
    tor_nics: int = count(64, "NICs below a ToR (with dual ToR: below a pair twice as many)", 1, 1024)
    pod_servers: int = count(64, "servers below one set of aggregation switches", 1, 16_384)
    aggs: int = count(8, "aggregation switches of a pod", 1, 512)
    oversubscription: float = ratio("1", "bandwidth below a full ToR over that above it")
    core_oversubscription: float = ratio("1", "the same of an aggregation switch")
    link: float = rate("400Gb/s", "an up-link, each way, at most")
    latency: float = time("500ns", "every cable outside servers, one way, with the switch that it enters")

    def build(self) -> Graph:
        columns = Columns()
        inside, nic_rate = node_of(self.node, f"{self.NAME}.node")
        servers = add_servers(columns, inside, self.servers)
        ports = 2 if self.dual_tor else 1
        nics = self.tor_nics * ports
        if nics % inside.nics:
            raise self.wrong("tor_nics", f"a multiple of the node's {inside.nics} NICs" + (", halved" if ports == 2 else ""))
        below = nics // inside.nics
        if self.pod_servers % below:
            raise self.wrong("pod_servers", f"a multiple of the {below} servers below a ToR")
        names = ["tor"] if ports == 1 else ["tor0-", "tor1-"]
        rate = nic_rate / ports
        tors = np.concatenate([leaves(columns, servers.nics, below, False, rate, self.latency, name) for name in names], axis=1)
        total, _ = up_links(nics * rate, self.link, self.oversubscription)
        parallel = -(-total // self.aggs)
        up_rate = nics * rate / self.oversubscription / (parallel * self.aggs)
        groups = self.pod_servers // below
        rows = [tors[i : i + groups].reshape(1, -1) for i in range(0, len(tors), groups)]
        pods = [
            spines(columns, row, self.aggs, up_rate, self.latency, parallel, "agg" if len(rows) == 1 else f"pod{p}.agg")
            for p, row in enumerate(rows)
        ]
        if len(pods) > 1:
            core_up, core_rate = up_links(groups * ports * parallel * up_rate, self.link, self.core_oversubscription)
            cores(columns, np.concatenate(pods), core_up, core_rate, self.latency)
        return ends(columns, servers)
