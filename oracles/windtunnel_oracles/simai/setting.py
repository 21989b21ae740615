"""What SimAI's analytical mode is told, and the kinds of numbers that it computes with."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache

GPU_RATES = {"A100": 20.0 * 12, "A800": 20.0 * 8, "H100": 20.6 * 18, "H800": 20.6 * 8, "H20": 20.6 * 18}
"""GB/s of NVLink where `nvlink` is left out (calbusbw.h)."""
NIC_RATES = {"CX6": 23.5, "CX7": 48.5, "BF3": 48.5}
"""GB/s of a NIC where `nic` is left out (calbusbw.h)."""
_WRAP = 2**64


@dataclass(frozen=True)
class SimaiSetting:
    """Options of SimAI_analytical by their meaning. `nvlink`, `nic`: GB/s of a GPU and of a NIC; 0: those of `gpu_type` and
    `nic_type`. Overlaps: the share of a call that computation hides. `pp_overlap` 1 is what the code has where it is left out."""

    gpus: int
    gpus_per_server: int = 8
    nics_per_server: int = 8
    nvlink: float = 0.0
    nic: float = 0.0
    gpu_type: str = "H100"
    nic_type: str = "CX7"
    dp_overlap: float = 0.0
    ep_overlap: float = 0.0
    tp_overlap: float = 0.0
    pp_overlap: float = 1.0

    @property
    def nvlink_rate(self) -> float:
        """GB/s of a GPU, rounded to single precision as there."""
        return single(self.nvlink if self.nvlink > 0 else GPU_RATES[self.gpu_type])

    @property
    def nic_rate(self) -> float:
        """GB/s of a NIC, rounded to single precision as there."""
        return single(self.nic if self.nic > 0 else NIC_RATES[self.nic_type])


def single(value: float) -> float:
    """A number rounded to single precision."""
    if not math.isfinite(value):
        return value
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def ticks(value: float) -> int:
    """A double as unsigned 64-bit ns, as x86-64 converts it: what is below zero wraps, what does not fit becomes 0 or 2^63."""
    if math.isnan(value):
        return 2**63
    if value >= 2**63:
        return int(value) if value < _WRAP else 0
    return int(value) % _WRAP if value > -(2**63) else 2**63


@lru_cache(maxsize=4096)
def scale_ns(value: int, factor: float) -> int:
    """Unsigned ns times a single-precision factor, which rounds the ns to single precision too."""
    return ticks(single(single(float(value)) * factor))
