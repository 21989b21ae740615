"""Area of a GPU's dies, and what dies, memory and package cost to make, from the numbers of its specification.

    SM      = transistors / density + registers and L1 / bits a mm2
    die     = built SMs + L2 + stacks (PHY + controller) + links (PHY + controller) + PCIe
    yield   = exp(-defects x area without SMs) x P(Poisson(defects x area of SMs) <= spare SMs)
    dollars = wafer / (dies on a wafer x yield) x dies + memory + interposer x price

The multiply-accumulates of an SM follow from the peak: bf16 FLOP/s = 2 x MACs x SMs x clock. A die larger than the reticle is
several. `catalog/silicon.toml` has every number with its source. Without it: test, assembly, boards, design, margins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.files import CATALOG
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.machine import Node

STACKED = 1e12
"""Bytes a second from which memory is in stacks; boards of these architectures with GDDR have less."""


@dataclass(frozen=True)
class Silicon:
    """A GPU of a node: `parts` of the die in mm2, `area` of all its dies, `dies` of them, the share that works (`working`), memory
    `stacks`, `links` between GPUs, and US dollars to make dies, memory and package."""

    parts: Mapping[str, float]
    area: float
    dies: int
    working: float
    stacks: int
    links: int
    die_dollars: float
    memory_dollars: float
    package_dollars: float

    @property
    def dollars(self) -> float:
        """US dollars of dies, memory and package."""
        return self.die_dollars + self.memory_dollars + self.package_dollars

    def as_dict(self) -> dict[str, Any]:
        """Plain data: mm2 and US dollars."""
        return {**asdict(self), "parts": dict(self.parts), "dollars": self.dollars}


def lacks_silicon(node: Node) -> str:
    """Why there is no such number for a node's GPU; empty where there is one."""
    gpu, known = node.gpu, _table()["architecture"]
    if gpu.architecture not in known:
        return f"Silicon is known of {', '.join(known)}, not of {gpu.architecture}."
    if gpu.memory_bandwidth < STACKED:
        return "Silicon is known of GPUs with stacked memory."
    if gpu.sms is None or gpu.clock_hz is None or gpu.l2 is None or "bf16" not in gpu.peak:
        return "The GPU states no SMs, clock, L2 or bf16 peak."
    return ""


def silicon_of(node: Node) -> Silicon | None:
    """The silicon of a node's GPU; None where `lacks_silicon` says why."""
    if lacks_silicon(node):
        return None
    gpu, table = node.gpu, _table()
    kind, areas, units = table["architecture"][gpu.architecture], table["areas"], table["transistors"]
    process, package = table["process"][kind["process"]], table["package"]
    sms, clock, l2 = float(gpu.sms or 0), float(gpu.clock_hz or 0.0), float(gpu.l2 or 0)
    cache_mm2 = 8.0 * process["bit_cell"] / areas["cache_share"]  # of a byte
    lanes = sum(kind[f"{unit}_lanes"] * units[f"{unit}_lane"] for unit in ("fp32", "int32", "fp64"))
    macs = gpu.peak["bf16"] / (2.0 * clock * sms)
    logic = macs * units["fp16_mac"] + lanes + 128.0 * units["control_lane"] + units["crossbar_port"]
    one = logic / process["logic"] + kind["sm_memory"] * cache_mm2
    stacks = max(
        math.ceil(gpu.memory_bandwidth / kind["stack_rate"]),
        math.ceil(gpu.memory / kind["stack_size"]),
    )
    links = math.ceil(node.scale_up.bandwidth / kind["link_rate"])
    parts = {
        "SMs": sms * kind["built"] * one,
        "L2": l2 * cache_mm2,
        "memory": stacks * (areas["hbm_phy"] + units["hbm_controller"] / process["logic"]),
        "links": links * (kind["link_phy"] + kind["link_controller"] / process["logic"]),
        "PCIe": areas["lanes"] * (areas["pcie_phy"] + units["pcie_controller"] / process["logic"]),
    }
    area = sum(parts.values())
    dies = math.ceil(area / package["reticle"])
    working = _working(parts, sms, kind["built"], process["defects"], dies)
    die_dollars = dies * process["wafer"] / (_on_a_wafer(area / dies, package["wafer_mm"]) * working)
    interposer = package["interposer"] * (area + stacks * package["stack"])
    memory_dollars = gpu.memory / 1e9 * kind["memory_dollars_per_gb"]
    return Silicon(
        parts, area, dies, working, stacks, links, die_dollars, memory_dollars, interposer * package["dollars_per_mm2"]
    )  # fmt: skip


def _working(parts: Mapping[str, float], sms: float, built: float, defects: float, dies: int) -> float:
    """Share of dies with no defect outside SMs, and in no more SMs than are spare."""
    from scipy.special import pdtr  # scipy's import is as long as a short command

    inside = parts["SMs"] / dies
    outside = sum(parts.values()) / dies - inside
    return float(math.exp(-defects * outside) * pdtr(math.floor(sms * (built - 1.0) / dies + 1e-9), defects * inside))


def _on_a_wafer(area: float, wafer: float) -> float:
    """Dies of `area` mm2 on a round wafer of `wafer` mm, without those that its edge cuts."""
    return math.pi * (wafer / 2.0) ** 2 / area - math.pi * wafer / math.sqrt(2.0 * area)


@cache
def _table() -> Mapping[str, Any]:
    return read_table(CATALOG / "silicon.toml")
