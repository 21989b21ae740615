"""Seconds of dense matrix products: tiles, waves, split-k, memory.

For each tile shape (r, c) and each split s of k that a BLAS library might choose, a batch of (m,k)@(k,n) makes

    blocks = batch ceil(m/r) ceil(n/c) s          waves = blocks / SMs, rounded up in part (`wave`)
    compute = waves * 2 r c (k/s + prologue) * (1 + tile_cost (1/r + 1/c)) / (ceiling fraction / SMs)
    memory  = bytes / (bandwidth * memory)
    t = (compute^p + memory^p)^(1/p)
    seconds = latency + t (1 + throttle t / (t + settle))

and the fastest choice counts, as the library's own heuristic looks for it. Never faster than peak.
Source of the form: tile and wave quantisation as NVIDIA's "Matrix Multiplication Background User's Guide" describes it; constants
are fitted by `fit.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.compute.device import ELEMENT, RESULT, Device
from windtunnel.compute.kernels import GemmCurve

Array = npt.NDArray[np.float64]
SPLITS = (1.0, 2.0, 3.0, 4.0, 8.0)


def gemm_bytes(batch: Array, m: Array, n: Array, k: Array, dtype: npt.NDArray[np.int8], accumulate: npt.NDArray[np.bool_]) -> Array:
    """HBM bytes of operands read once and the result written once; an accumulating product reads and writes fp32."""
    result = np.where(accumulate, 8.0, RESULT[dtype])
    return np.asarray(batch * (ELEMENT[dtype] * (m * k + k * n) + result * m * n), dtype=np.float64)


def gemm_seconds(curve: GemmCurve, dev: Device, batch: Array, m: Array, n: Array, k: Array, dtype: npt.NDArray[np.int8],
                 moved: Array, factor: Array) -> Array:
    """Seconds of one launch per row. Arguments are equal-length arrays; `moved` is HBM bytes, `factor` the layout's time factor."""
    if len(m) == 0:
        return np.zeros(0)
    tiles = np.array(curve.tiles, dtype=np.float64)
    rows, columns = tiles[:, 0][None, :, None], tiles[:, 1][None, :, None]
    split = np.array(SPLITS)[None, None, :]
    b3, m3, n3, k3 = (np.maximum(x, 1e-9)[:, None, None] for x in (batch, m, n, k))
    blocks = b3 * np.ceil(m3 / rows) * np.ceil(n3 / columns) * split
    even = blocks / dev.sms
    waves = np.maximum(1.0, curve.wave * np.ceil(even) + (1.0 - curve.wave) * even)
    slow = (1.0 + curve.tile_cost * (1.0 / rows + 1.0 / columns)) * 2.0 * rows * columns * dev.sms
    compute = waves * slow * (k3 / split + curve.prologue)
    rate = (dev.ceiling[dtype] * curve.fraction)[:, None, None]
    # Partial results are written and read in fp32; most of that traffic stays in L2, taken as four times as fast as HBM.
    extra = np.where(split > 1.0, curve.split + 8.0 * b3 * m3 * n3 * split / (4.0 * dev.bandwidth), 0.0)
    best = (compute / rate + extra).min(axis=(1, 2)) * factor
    memory = moved / (dev.bandwidth * curve.memory)
    joined = (best**curve.blend + memory**curve.blend) ** (1.0 / curve.blend)
    floor = 2.0 * batch * m * n * k / dev.peak[dtype]
    held = joined * (1.0 + curve.throttle * joined / (joined + curve.settle))
    return np.asarray(np.maximum(curve.latency + held, floor), dtype=np.float64)
