"""A server without NVLink: GPUs on PCIe switches, switches on sockets, sockets joined by the CPUs' own link."""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import Builder, count
from windtunnel.network.fabrics.parameters import rate as rate_field
from windtunnel.network.fabrics.server import Inside, add_servers, ends
from windtunnel.spec.pcie import PCIE_X16


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
