"""The clock of matrix products on one machine: how far its power limit, cooling and silicon hold them below full clock.

    P(clock) = static + (P(1) - static) phi(clock)                    phi as in `power.py`
    activity = (P(1) - static) / (limit - static)                     of a product at full clock, on the machine of the curve
    clock    = phi^-1(room / activity)                                1 for a product that stays below the limit

`activity` of a large product by number format stands in `catalog/calibration/power.toml`: what it loses at the limit. A smaller or
slower one draws in proportion to its rate. `room` is what a machine leaves over what the machine behind the curve left. It follows
from the rate R that a large product sustains on it:

    room = phi(c R / R_curve) / phi(c)                                c: the clock of that product on the curve's machine

Without a stated rate, a GPU whose sustained products several machines published runs at the geometric mean of them. Attention and
experts' products of such a GPU may have been measured on another machine than its products; they are never faster than there.
"""

from __future__ import annotations

import math
import tomllib
from functools import lru_cache
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int8s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.compute.choose import choose
from windtunnel.compute.curves import Choice
from windtunnel.compute.device import Device, device
from windtunnel.compute.forward import choose_forward
from windtunnel.compute.gemm import gemm_bytes, gemm_seconds
from windtunnel.compute.kernel_file import is_path
from windtunnel.compute.power import FILE, clock_of, phi, shares_of, watts_of
from windtunnel.spec import load_gpu
from windtunnel.spec.machine import GPU
from windtunnel.workload.ops import DTYPES

SIDE = 8192
"""Rows, columns and inner dimension of the product whose sustained rate describes a machine."""

BF16 = DTYPES.index("bf16")


@dataclass(frozen=True)
class ProductClock:
    """The clocks of one machine's products. `activity` and `rates` (FLOP/s of the large product) are by dtype code;
    nothing is said of a machine without rates, and its products take the time of their curves.

    `room` is for products and `others` for attention and experts' products, each over the machine of their curves; `gain`: how much
    faster than full clock on the curve's machine a stated rate is; `error`: of a rate that nobody stated.
    """

    activity: Floats
    floor: float
    rates: Floats = field(default_factory=lambda: np.zeros(0))
    room: float = 1.0
    others: float = 1.0
    gain: float = 1.0
    error: float = 0.0

    def stretch(self, flops: Floats, seconds: Floats, dtype: Int8s, others: bool = False) -> Floats:
        """Time of each row [rows] over that of its curve; `others`: attention and experts' products."""
        room, gain = (self.others, 1.0) if others else (self.room, self.gain)
        if room == 1.0 and gain == 1.0:
            return np.ones(len(flops))
        rate = flops / np.maximum(seconds, 1e-30)
        drawn = np.maximum(self.activity[dtype] * np.minimum(1.0, rate / self.rates[dtype]), 1e-9)
        return np.asarray(clocks_of(1.0 / drawn, self.floor) / clocks_of(room / drawn, self.floor) / gain)

    def of_large(self, name: str) -> float:
        """Clock of a large product of a number format, as a share of the full one."""
        return min(1.0, self.gain * clock_of(self.room / float(self.activity[DTYPES.index(name)]), self.floor))


def product_clock(gpu: GPU, choice: Choice, dev: Device) -> ProductClock:
    """The clocks of `gpu`'s products: by the rate that it states, or by those that were published for it. Curves in a user's own
    file are those of that user's machine."""
    shares = shares_of(gpu)
    activity = _activity_at_full_clock(gpu.architecture, shares.floor)
    full = clock_of(1.0 / float(activity[BF16]), shares.floor)

    def room_of(share: float) -> float:
        return phi(min(1.0, full * share), shares.floor) / phi(full, shares.floor)

    other = 1.0 if is_path(gpu.kernels_from) else _of_other_machine(choice.kernels.id)
    if gpu.sustained_rate is not None:
        rates = large_rates(choice, dev)
        share = gpu.sustained_rate / float(rates[BF16])
        others = min(1.0, room_of(share / other))
        return ProductClock(activity, shares.floor, rates, room_of(share), others, max(1.0, full * share))
    if other == 1.0 or "gemm" in choice.own:
        return ProductClock(activity, shares.floor)
    rates, error = large_rates(choice, dev), 0.5 * abs(math.log(other))
    return ProductClock(activity, shares.floor, rates, room_of(math.sqrt(other)), error=error)


@lru_cache
def _activity_at_full_clock(architecture: str, floor: float) -> Floats:
    """Activity of the large product at full clock, by dtype code."""
    lost = _table()["at_limit"].get(architecture, {})
    slower = [float(lost.get(name, lost.get(NEAR.get(name, ""), 1.0))) for name in DTYPES]
    return np.array([1.0 / phi(1.0 / each, floor) for each in slower])


def large_clock(gpu: GPU, precision: str) -> float:
    """Clock of a large product of a number format on `gpu` under its power, as a share of the full one; 1 where nothing says it."""
    choice = choose(gpu)
    clock = product_clock(gpu, choice, device(gpu, choice.kernels, "", choose_forward(gpu)))
    capped = gpu.sustained_rate is None and (gpu.power_cap_w is not None or gpu.clock_lock is not None)
    watts = watts_of(gpu) if capped else None
    known = gpu.sustained_rate is not None or gpu.architecture in _table()["at_limit"]
    return clock.of_large(precision) / (1.0 if watts is None else watts.tensor_stretch) if known else 1.0


def slowest_known(gpu: GPU) -> float | None:
    """Sustained FLOP/s of a large product on the slowest machine that was published for a GPU; None where one machine is known."""
    choice = choose(gpu)
    other = 1.0 if is_path(gpu.kernels_from) else _of_other_machine(choice.kernels.id)
    if other == 1.0 or "gemm" in choice.own:
        return None
    dev = device(gpu, choice.kernels, "", choose_forward(gpu))
    return float(large_rates(choice, dev)[BF16]) * min(1.0, other)


NEAR = {"fp16": "bf16", "mxfp8": "fp8"}
"""Number format -> the one whose activity it takes."""


def large_rates(choice: Choice, dev: Device) -> Floats:
    """FLOP/s of the large product on the curve's machine, by dtype code."""
    count = len(DTYPES)
    one, side, dtype = np.ones(count), np.full(count, float(SIDE)), np.arange(count, dtype=np.int8)
    moved = gemm_bytes(one, side, side, side, dtype, np.zeros(count, np.bool_))
    return 2.0 * SIDE**3 / gemm_seconds(choice.kernels.gemm, dev, one, side, side, side, dtype, moved, one)


def clocks_of(room: Floats, floor: float) -> Floats:
    """`power.clock_of` of each element."""
    return np.where(room >= 1.0, 1.0, np.where(room >= floor**3, np.cbrt(room), np.maximum(0.02, room / floor**2)))


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


@lru_cache
def _of_other_machine(gpu: str) -> float:
    """Sustained rate of a large product on the other machine that was published for a GPU, over that of its curve; 1: none was."""
    rate = _table()["sustained"].get(gpu)
    if rate is None:
        return 1.0
    listed = load_gpu(gpu)
    choice = choose(listed)
    return float(rate) / float(large_rates(choice, device(listed, choice.kernels, "", choose_forward(listed)))[BF16])
