"""Seconds of recurrences in chunks: the Triton kernels of Mamba-2 and of gated linear attention, and the convolutions before them.

    seconds = launches latency + ((bytes / (bandwidth memory))^2 + (FLOPs / (peak rate))^2 + (chunks step)^2)^(1/2)

A recurrence is several kernels that hand states of chunks to each other through HBM (Dao and Gu 2024, arXiv:2405.21060, section 6;
mamba_ssm/ops/triton; fla/ops). Most of them work on all chunks at once; some go through a sequence's chunks in order, which short
batches of long sequences wait for. `forward.py` holds the constants.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int8s, Int64s
from windtunnel.compute.device import Device
from windtunnel.compute.forward_curves import ConvolutionCurve, ScanConstants, ScanCurve
from windtunnel.workload.identity import Role

Sizes = Int64s | Floats
SCANS = {Role.STATE_SPACE_SCAN: "state_space", Role.DELTA_RULE: "delta", Role.CHANNEL_DELTA_RULE: "delta_by_channel"}
"""Role of a row -> its curve; other scans take that of state spaces."""


def scan_seconds(
    curve: ScanCurve,
    dev: Device,
    backward: Bools,
    tokens: Sizes,
    chunk: Sizes,
    moved: Floats,
    flops: Floats,
    dtype: Int8s,
    launches: Floats,
) -> Floats:
    """Seconds of recurrences over sequences of `tokens` in chunks, that move `moved` HBM bytes and compute `flops` in `launches`
    kernels."""
    chunks = np.ceil(tokens / np.maximum(chunk, 1))

    def seconds(way: ScanConstants) -> Floats:
        stream = moved / (dev.bandwidth * way.memory)
        products = flops / (dev.peak[dtype] * way.rate)
        return np.asarray(launches * way.latency + np.sqrt(stream**2 + products**2 + (chunks * way.step) ** 2), np.float64)

    return np.where(backward, seconds(curve.backward), seconds(curve.forward))


def convolution_seconds(curve: ConvolutionCurve, dev: Device, moved: Floats, launches: Floats) -> Floats:
    """Seconds of short convolutions that move `moved` bytes in `launches` kernels."""
    return np.asarray(launches * curve.latency + moved / (dev.bandwidth * curve.memory), np.float64)
