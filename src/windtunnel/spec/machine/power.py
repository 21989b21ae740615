"""What draws power: a GPU by what it does, the rest of a node, a fabric's switches and optics."""

from __future__ import annotations

from pydantic import Field

from windtunnel.spec.common import Fraction, NonNegativeFloat, Noun


class GpuDraw(Noun):
    """Shares of a GPU's `power_w` by what it does, where they differ from those of `catalog/calibration/power.toml`."""

    tensor: Fraction | None = Field(default=None, description="matrix products and attention")
    memory: Fraction | None = Field(default=None, description="kernels bound by memory")
    communicating: Fraction | None = Field(default=None, description="inside a call that moves data")
    waiting: Fraction | None = Field(default=None, description="inside a call whose partners are late")
    static: Fraction | None = Field(default=None, description="while nothing runs")
    floor: Fraction | None = Field(default=None, description="share of the clock below which the voltage no longer falls")
    knee: Fraction | None = Field(default=None, description="share of the clock from which kernels bound by memory slow down")
    source: str = ""


class NodeDraw(Noun):
    """Watts of a node beside its GPUs while it trains, before losses of the power supplies."""

    host_w: NonNegativeFloat = Field(description="processors, memory, disks, board")
    switches_w: NonNegativeFloat = Field(default=0.0, description="scale-up and PCIe switches")
    nic_w: NonNegativeFloat = Field(default=0.0, description="one NIC with its transceiver")
    fans_w: NonNegativeFloat = Field(default=0.0, description="fans at full GPU power; they follow it")
    psu_efficiency: Fraction = Field(
        default=0.96, description="power out over power in; 80 PLUS Titanium at half load, where redundant supplies run: 96 %"
    )
    source: str = ""


class SwitchDraw(Noun):
    """Switches of a scale-out fabric: one `switch_w` for `ports` NICs, and `optic_w` for each end of an optical link."""

    ports: int = Field(default=64, ge=2, le=4096, strict=True, description="ports at the rate of a NIC")
    switch_w: NonNegativeFloat = Field(default=750.0, description="Quantum-2 QM9700: 747 W without transceivers, from memory")
    optic_w: NonNegativeFloat = Field(default=9.0, description="MMS4X00-NS400, 400 Gb/s: 9 W (NVIDIA's specification)")
    source: str = ""
