"""Rail-optimised fabric (Spectrum-X, InfiniBand SuperPODs): NIC j of every server of a unit connects to leaf j of that unit.

Defaults are those of SimAI's Spectrum-X template (aliyun/SimAI, inputs/topo/gen_Topo_Template.py: 64 NICs a leaf, 64 spines,
400 Gb/s, 0.5 us, eight leaves a segment); NVIDIA's reference designs use units of 32 servers with the same wiring (DGX SuperPOD
H100).

Rail-only (Wang, Ghobadi, Shakeri, Zhang and Hasani, "Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillion
Parameters", HOTI 2024) leaves out the switches that join rails: each rail is a network of its own, and what changes rails goes over
NVLink.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.clos import leaves, spines, up_links
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import Builder, count, rate, ratio, time, word
from windtunnel.network.fabrics.server import add_servers, ends, node_of


@dataclass(frozen=True)
class Rail(Builder):
    """GPU servers, a leaf for each rail of a unit, spines over all leaves."""

    NAME = "rail"
    servers: int = count(64, "GPU servers", 1, 65_536)
    node: str = word("hgx-h100", "catalogue node: GPUs, NVLink, PCIe, NICs")
    leaf_servers: int = count(64, "servers below one set of leaves", 1, 1024)
    oversubscription: float = ratio("1", "bandwidth below a full leaf over that above it")
    link: float = rate("400Gb/s", "a cable from leaf to spine, each way, at most; NICs have the node's rate")
    latency: float = time("500ns", "every cable outside servers, one way, with the switch that it enters")

    def build(self) -> Graph:
        columns = Columns()
        inside, nic_rate = node_of(self.node, f"{self.NAME}.node")
        servers = add_servers(columns, inside, self.servers)
        leaf = leaves(columns, servers.nics, self.leaf_servers, True, nic_rate, self.latency)
        up, up_rate = up_links(self.leaf_servers * nic_rate, self.link, self.oversubscription)
        spines(columns, leaf.reshape(1, -1), up, up_rate, self.latency)
        return ends(columns, servers)


@dataclass(frozen=True)
class RailOnly(Rail):
    """As `rail`, with spines of its own for each rail; flows that change rails need `--nic pxn` or `--nic rail`."""

    NAME = "rail_only"

    def build(self) -> Graph:
        columns = Columns()
        inside, nic_rate = node_of(self.node, f"{self.NAME}.node")
        servers = add_servers(columns, inside, self.servers)
        leaf = leaves(columns, servers.nics, self.leaf_servers, True, nic_rate, self.latency)
        if len(leaf) > 1:
            up, up_rate = up_links(self.leaf_servers * nic_rate, self.link, self.oversubscription)
            spines(columns, np.ascontiguousarray(leaf.T), up, up_rate, self.latency)
        return ends(columns, servers)
