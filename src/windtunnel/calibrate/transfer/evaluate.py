"""Curves evaluated on rows: seconds on a GPU as its data sheet describes it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.calibrate.transfer.rows import TransferRows
from windtunnel.compute.attention import attention_seconds
from windtunnel.compute.curves import AttentionCurve, GemmCurve
from windtunnel.compute.device import Device
from windtunnel.compute.gemm import gemm_seconds
from windtunnel.compute.transfer.law import Sheet
from windtunnel.workload.ops import DTYPES

HALF = DTYPES.index("bf16")
SMS = 128.0
CACHE = 50e6
"""Defaults for a sheet without SMs or L2: a current large GPU."""


def device_of(on: Sheet) -> Device:
    """The device for the curves: every format at the half-precision peak, without limits."""
    rate = np.full(len(DTYPES), on.peak)
    return Device(rate, rate, on.bandwidth, on.sms or SMS, on.l2 or CACHE)


def gemm(curve: GemmCurve, on: Sheet, rows: TransferRows) -> Floats:
    """Seconds of products; a batch is one launch."""
    layout = np.select([rows.way == "dgrad", rows.way == "wgrad"], [curve.dgrad, curve.wgrad], 1.0)
    half = np.full(len(rows), HALF, np.int8)
    return gemm_seconds(curve, device_of(on), rows.batch, rows.m, rows.n, rows.k, half, rows.moved, layout)


def attention(curves: Mapping[str, AttentionCurve], on: Sheet, rows: TransferRows) -> Floats:
    """Seconds of attention by its direction."""
    seconds = np.zeros(len(rows))
    for way, curve in curves.items():
        mask = rows.way == way
        some = rows.where(mask)
        seconds[mask] = attention_seconds(
            curve, device_of(on), way, some.batch, some.m, some.n, some.k, np.full(len(some), HALF, np.int8), some.flops
        )
    return seconds
