"""Rates of PCI Express with 16 lanes, by generation."""

from __future__ import annotations

from typing import NamedTuple


class PcieRates(NamedTuple):
    """B/s each way of 16 lanes.

    `line`: after line coding, 8, 16, 32 and 64 GT/s a lane (PCI-SIG base specifications 3.0 to 6.0).
    `peer`: what a GPU or NIC moves to another device: `line` less headers of 256-byte packets and flow control, about 17 %
    (assumed from the packet format; generation 6 is taken as twice generation 5).
    `nic`: the fastest NIC that was sold for them: ConnectX-5 to ConnectX-8, 100, 200, 400 and 800 Gb/s (vendor).
    """

    line: float
    peer: float
    nic: float


PCIE_X16: dict[int, PcieRates] = {
    3: PcieRates(15.75e9, 13e9, 12.5e9),
    4: PcieRates(31.5e9, 26e9, 25e9),
    5: PcieRates(63.0e9, 52e9, 50e9),
    6: PcieRates(121e9, 104e9, 100e9),
}
"""By generation."""


def nearest_pcie(generation: int) -> PcieRates:
    """Rates of a generation; of an older or newer one than the table has, its first or last row."""
    return PCIE_X16[min(max(generation, min(PCIE_X16)), max(PCIE_X16))]
