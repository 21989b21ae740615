"""Seconds of fused (flash) attention, forward and backward.

    blocks  = batch ceil(m / rows)                waves = blocks / SMs + wave * longest, at least longest
    read    = min(keys + rows (1 - 2 share), n / 2), at least keys
    seconds = latency + work / (ceiling fraction) * waves SMs / blocks * (read + setup) / keys * (1 + head / k) * pad * mask

`work`: executed FLOPs, with query rows rounded up to full blocks; `longest`: the longest block's work over the mean (2 under a
causal mask); `keys`: the mean number of key positions of a query, `share` of all n; `read`: those of its block, whose queries see
different ones where a window or a document ends (what a causal mask alone hides of a block is in `setup`); `pad`: the kernel's head
size (multiples of 32 to 128, of 64 above) over the head size; `mask`: 1 without a mask, `causal` if half of the square is masked,
interpolated in between. The form follows the work partitioning of FlashAttention-2 (arXiv 2307.08691, §3.2).
`calibrate.kernels` fits the constants.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int8s
from windtunnel.compute.curves import AttentionCurve
from windtunnel.compute.device import Device

FULL = {"forward": 4.0, "backward": 10.0}
"""FLOP per query, key and head element: two products forward, five backward (scores are computed again)."""


def attention_seconds(
    curve: AttentionCurve,
    dev: Device,
    way: str,
    batch: Floats,
    m: Floats,
    n: Floats,
    k: Floats,
    dtype: Int8s,
    flops: Floats,
) -> Floats:
    """Seconds of one launch per row: batch = sequences x heads, m query and n key tokens, k head size."""
    if len(m) == 0:
        return np.zeros(0)
    full = FULL[way] * batch * m * n * k
    share = np.clip(np.where(flops > 0, flops, full) / np.maximum(full, 1.0), 1e-6, 1.0)
    blocks = np.maximum(batch * np.ceil(m / curve.rows), 1e-9)
    even = blocks / dev.sms
    # Under a causal mask the last queries attend to all keys: the kernel ends with its longest block, while other SMs idle.
    longest = np.minimum(1.0 / share, 2.0)
    waves = np.maximum(longest, even + curve.wave * longest)
    mask = 1.0 + (curve.causal - 1.0) * np.minimum(1.0, 2.0 * (1.0 - share))
    size = np.maximum(k, 1.0)
    step = np.where(size <= 128, 32.0, 64.0)
    pad = np.ceil(size / step) * step / size
    padding = np.ceil(m / curve.rows) * curve.rows / np.maximum(m, 1.0)
    keys = np.maximum(n * share, 1.0)
    read = np.maximum(keys, np.minimum(keys + curve.rows * np.maximum(1.0 - 2.0 * share, 0.0), 0.5 * n))
    slow = padding * waves / even * (read + curve.setup) / keys * (1.0 + curve.head / size) * pad * mask
    work = np.where(flops > 0, flops, full)
    seconds = curve.latency + work / (dev.ceiling[dtype] * curve.fraction) * slow
    return np.asarray(np.maximum(seconds, work / dev.peak[dtype]), dtype=np.float64)
