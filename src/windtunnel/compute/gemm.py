"""Seconds of dense and grouped matrix products: tiles, waves, split-k, memory.

For each tile shape (r, c) and each split s of k that a BLAS library might choose, a batch of (m,k)@(k,n) makes

    blocks = batch ceil(m/r) ceil(n/c) s          waves = blocks / SMs, rounded up in part (`wave`)
    compute = waves * 2 r c (k/s + prologue) * (1 + tile_cost (1/r + 1/c)) / (ceiling fraction / SMs)
    memory  = (bytes + result (1/store - 1)) / (bandwidth * memory)
    t = (compute^p + memory^p)^(1/p)
    x = (t / settle)^sharp
    seconds = latency + t (1 + throttle x / (1 + x))

and the fastest choice is taken, as by the library's heuristic. Never faster than peak.
`result`: bytes of the result written once; tiles store it at `store` times the rate of reading, which dominates if k is small.
Source of the form: tile and wave quantisation as NVIDIA's "Matrix Multiplication Background User's Guide" describes it; constants
are fitted by `calibrate.kernels`.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int8s
from windtunnel.compute.curves import GemmCurve
from windtunnel.compute.device import ELEMENT, RESULT, Device

SPLITS = (1.0, 2.0, 3.0, 4.0, 8.0)
CHUNK = 4096
"""Rows per chunk, so that the arrays of one chunk stay in a core's second-level cache."""


def gemm_bytes(batch: Floats, m: Floats, n: Floats, k: Floats, dtype: Int8s, accumulate: Bools) -> Floats:
    """HBM bytes of operands read once and the result written once; an accumulating product reads and writes fp32."""
    result = np.where(accumulate, 8.0, RESULT[dtype])
    return np.asarray(batch * (ELEMENT[dtype] * (m * k + k * n) + result * m * n), dtype=np.float64)


def gemm_seconds(
    curve: GemmCurve,
    dev: Device,
    batch: Floats,
    m: Floats,
    n: Floats,
    k: Floats,
    dtype: Int8s,
    moved: Floats,
    factor: Floats,
) -> Floats:
    """Seconds of one launch per row. Arguments are equal-length arrays; `moved` is HBM bytes, `factor` the layout's time factor."""
    out = np.empty(len(m))
    for begin in range(0, len(m), CHUNK):
        part = slice(begin, begin + CHUNK)
        out[part] = _seconds(curve, dev, batch[part], m[part], n[part], k[part], dtype[part], moved[part], factor[part])
    return out


def _seconds(
    curve: GemmCurve,
    dev: Device,
    batch: Floats,
    m: Floats,
    n: Floats,
    k: Floats,
    dtype: Int8s,
    moved: Floats,
    factor: Floats,
) -> Floats:
    b, r, c, d = (np.maximum(x, 1e-9) for x in (batch, m, n, k))
    best = _fastest(curve, dev, b, r, c, d, dev.ceiling[dtype] * curve.fraction) * factor
    moved = moved + batch * m * n * RESULT[dtype] * (1.0 / curve.store - 1.0)
    memory = moved / (dev.bandwidth * curve.memory)
    joined = (best**curve.blend + memory**curve.blend) ** (1.0 / curve.blend)
    floor = 2.0 * batch * m * n * k / dev.peak[dtype]
    seconds = curve.latency + throttled_seconds(joined, curve.throttle, curve.settle, curve.sharp)
    return np.asarray(np.maximum(seconds, floor), dtype=np.float64)


def throttled_seconds(seconds: Floats, throttle: float, settle: float, sharp: float) -> Floats:
    """`seconds` at full clock, longer by up to `throttle` as the power limit lowers the clock; monotone in `seconds`."""
    if throttle == 0.0:
        return seconds
    x = seconds / settle if sharp == 1.0 else (seconds / settle) ** sharp
    return np.asarray(seconds * (1.0 + throttle * x / (1.0 + x)), dtype=np.float64)


def _fastest(curve: GemmCurve, dev: Device, batch: Floats, m: Floats, n: Floats, k: Floats, rate: Floats) -> Floats:
    """Seconds of the fastest tile and split; the splits of each tile [splits, products] are written into the same two arrays."""
    splits = np.array(SPLITS)[:, None]
    down = {r: np.ceil(m / r) for r in {r for r, _ in curve.tiles}}
    across = {c: batch * np.ceil(n / c) for c in {c for _, c in curve.tiles}}
    inner = (k / splits + curve.prologue) * (dev.sms / rate)
    # Partial results are written and read in fp32; most of that traffic stays in L2, assumed four times as fast as HBM.
    extra = curve.split + (8.0 * splits / (4.0 * dev.bandwidth)) * (batch * m * n)
    extra[0] = 0.0
    best = np.full(inner.shape, np.inf)
    even, waves = np.empty(inner.shape), np.empty(inner.shape)
    for r, c in curve.tiles:
        np.multiply(down[r] * across[c], splits / dev.sms, out=even)
        np.ceil(even, out=waves)
        waves *= curve.wave
        even *= 1.0 - curve.wave
        waves += even
        np.maximum(waves, 1.0, out=waves)
        waves *= (1.0 + curve.tile_cost * (1.0 / r + 1.0 / c)) * 2.0 * r * c
        waves *= inner
        waves += extra
        np.minimum(best, waves, out=best)
    return np.asarray(best.min(axis=0), np.float64)
