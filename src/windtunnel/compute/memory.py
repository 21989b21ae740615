"""Seconds of kernels that move bytes: norms, softmax, pointwise work, copies, optimizers.

    seconds = latency + bytes / (bandwidth * efficiency * gain)

`gain` goes from `cache` (a working set well inside L2) to 1 (one beyond twice the L2) as the set grows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.compute.device import Device
from windtunnel.compute.kernels import MemoryCurve

Array = npt.NDArray[np.float64]


def memory_seconds(curve: MemoryCurve, dev: Device, moved: Array, backward: npt.NDArray[np.bool_]) -> Array:
    """Seconds of one launch per row that moves `moved` HBM bytes.

    Monotone: bytes inside the cache go at `cache` times the rate, the rest at HBM's.
    """
    inside = np.minimum(moved, dev.l2)
    # The share that stays resident shrinks to nothing as the working set grows to four times the cache.
    kept = inside * np.clip((4.0 * dev.l2 - moved) / (3.0 * dev.l2), 0.0, 1.0)
    work = kept / curve.cache + (moved - kept)
    factor = np.where(backward, curve.backward, 1.0)
    return np.asarray(curve.latency + factor * work / (dev.bandwidth * curve.efficiency), dtype=np.float64)
