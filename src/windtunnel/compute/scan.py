"""Seconds of chunked scans: the Triton kernels of Mamba-2 and of gated linear attention.

    seconds = launches x latency + max(bytes / (bandwidth x efficiency), FLOPs / (peak x FRACTION))

with bandwidth, latency and efficiency of norms. A scan is several kernels that hand states of chunks to each other through HBM
(Dao and Gu 2024, arXiv:2405.21060, section 6; mamba_ssm/ops/triton; fla/ops).
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int8s
from windtunnel.compute.curves import MemoryCurve
from windtunnel.compute.device import Device

FRACTION = 0.137
"""Share of the 16-bit peak that the scans' small products reach, 64 to 256 a side: 135 TFLOP/s of an H800's 989, the best of a
search over tiles of Mamba-2's largest kernel (tile-ai/tilelang benchmark/mamba2/README.md, be9c08f). Assumed for the others."""

ERROR = 0.4
"""Relative 1-sigma error of a scan; assumed."""

SOURCE = "scan: bytes as norms move them, products as tilelang benchmark/mamba2 of one of them; assumed"


def scan_seconds(curve: MemoryCurve, dev: Device, moved: Floats, flops: Floats, dtype: Int8s, launches: Floats) -> Floats:
    """Seconds of scans that move `moved` HBM bytes and compute `flops` in `launches` kernels."""
    stream = moved / (dev.bandwidth * curve.efficiency)
    products = flops / (dev.peak[dtype] * FRACTION)
    return np.asarray(launches * curve.latency + np.maximum(stream, products), dtype=np.float64)
