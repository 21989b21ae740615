"""NVLink domains alone: GPUs on NVSwitches, as in HGX boards (eight) or NVL72 racks; domains are not joined to each other.

A server without NVLink: GPUs on PCIe switches, switches on sockets, sockets joined by the CPUs' own link.
"""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import Builder, count
from windtunnel.network.fabrics.parameters import rate as rate_field
from windtunnel.network.fabrics.server import Inside, add_servers, ends
from windtunnel.spec.pcie import PCIE_X16


@dataclass(frozen=True)
class NvLink(Builder):
    """GPUs of a domain reach each other through one NVSwitch node at full rate; PCIe and CPUs are there as well."""

    NAME = "nvlink"
    gpus: int = count(8, "GPUs of a domain: 8 for HGX, 72 for NVL72", 2, 576)
    domains: int = count(1, "domains", 1, 65_536)
    link: float = rate_field("450GB/s", "of a GPU, each way, all its links together: 300 (NVLink 3), 450 (4), 900 GB/s (5)")

    def build(self) -> Graph:
        columns = Columns()
        inside = Inside(self.gpus, self.gpus, "nvswitch", self.link, 18, 0, PCIE_X16[5].peer, PCIE_X16[5].peer)
        return ends(columns, add_servers(columns, inside, self.domains))


@dataclass(frozen=True)
class Pcie(Builder):
    """GPUs share the link of their PCIe switch to the CPU; between sockets all share one link."""

    NAME = "pcie"
    gpus: int = count(8, "GPUs, half of them on each socket", 2, 64)
    gen: int = count(4, "PCIe generation, x16 each", 3, 6)
    cpu_link: float = rate_field("16GB/s", "between the sockets, each way")

    def build(self) -> Graph:
        columns, rate = Columns(), PCIE_X16[self.gen].peer
        inside = Inside(self.gpus, self.gpus, "pcie", rate, 1, 0, rate, self.cpu_link)
        return ends(columns, add_servers(columns, inside, 1))
