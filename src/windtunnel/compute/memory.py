"""Seconds of kernels that move bytes: norms, softmax, pointwise work, copies, optimizers.

    stream  = bytes / (bandwidth * efficiency * gain)
    rows    = max(1, m / (RESIDENT SMs)) * (row + element n)
    seconds = latency + (stream^3 + rows^3)^(1/3)

`gain` falls from `cache` (a working set inside L2) to 1 (beyond `reach` times the L2) as the set grows. `rows` is the time of
thread blocks if a kernel assigns each of m rows of n elements to one block, as norms and softmax do: few or short rows do not
saturate the memory system. Classes whose data do not determine it have row = element = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.compute.curves import MemoryCurve
from windtunnel.compute.device import Device

RESIDENT = 2.0
"""Blocks of 1024 threads that an SM holds at once."""


class CurveOfRow(NamedTuple):
    """Curves of n rows [n]; fields as in `MemoryCurve`."""

    efficiency: Floats
    latency: Floats
    cache: Floats
    backward: Floats
    reach: Floats
    row: Floats
    element: Floats

    @classmethod
    def of(cls, curves: Sequence[MemoryCurve], which: Int64s) -> CurveOfRow:
        """`which` [n]: the curve of each row."""
        table = np.array([[getattr(curve, name) for curve in curves] for name in cls._fields])
        return cls(*table[:, which])


def memory_seconds(
    curve: MemoryCurve | CurveOfRow, dev: Device, moved: Floats, backward: Bools, m: Floats | None = None, n: Floats | None = None
) -> Floats:
    """Seconds of one launch per row that moves `moved` HBM bytes, over m rows of n elements if known.

    Monotone: bytes inside the cache move at `cache` times the rate, the others at HBM's.
    """
    inside = np.minimum(moved, dev.l2)
    # The share that stays resident shrinks to nothing as the working set grows to `reach` times the cache.
    kept = inside * np.clip((curve.reach * dev.l2 - moved) / ((curve.reach - 1.0) * dev.l2), 0.0, 1.0)
    work = kept / curve.cache + (moved - kept)
    factor = np.where(backward, curve.backward, 1.0)
    stream = work / (dev.bandwidth * curve.efficiency)
    by_row = np.logical_or(curve.row > 0.0, curve.element > 0.0)
    if m is not None and n is not None and by_row.any():
        blocks = np.maximum(m / (RESIDENT * dev.sms), 1.0) * (curve.row + curve.element * n)
        stream = np.where(by_row, np.cbrt(stream**3 + blocks**3), stream)
    return np.asarray(curve.latency + factor * stream, dtype=np.float64)
