"""Is the tile/wave formula right: hand-computed products."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.compute.curves import GemmCurve
from windtunnel.compute.device import Device
from windtunnel.compute.gemm import gemm_bytes, gemm_seconds

BF16 = 3
# 100 SMs at 1 TFLOP/s each, 1 TB/s.
DEVICE = Device(np.full(7, 100e12), np.full(7, 100e12), 1e12, 100.0, 40e6)
PLAIN = GemmCurve(
    fraction=1.0,
    tiles=((128, 128),),
    tile_cost=0.0,
    prologue=0.0,
    wave=1.0,
    memory=1.0,
    latency=1e-6,
    split=1.0,
    blend=50.0,
    throttle=0.0,
    settle=1.0,
)


def one(curve: GemmCurve, batch: float, m: float, n: float, k: float, moved: float = 0.0, factor: float = 1.0) -> float:
    cell = [np.array([x]) for x in (batch, m, n, k)]
    return float(gemm_seconds(curve, DEVICE, *cell, np.array([BF16], np.int8), np.array([moved]), np.array([factor]))[0])


def test_full_waves_run_at_the_ceiling() -> None:
    # 10 x 20 tiles on 100 SMs: two waves of 2*128*128*1024 FLOP at 1 TFLOP/s an SM
    assert one(PLAIN, 1, 1280, 2560, 1024) == pytest.approx(1e-6 + 2 * 2 * 128 * 128 * 1024 / 1e12)


def test_one_tile_more_costs_a_wave() -> None:
    # 201 tiles: the batch of 201 single tiles needs three waves
    assert one(PLAIN, 201, 128, 128, 1024) == pytest.approx(1e-6 + 3 * 2 * 128 * 128 * 1024 / 1e12)
    half = GemmCurve(**{**PLAIN.__dict__, "wave": 0.5})
    # half of the idle part of the third wave counts: 2.01 + (3 - 2.01) / 2
    assert one(half, 201, 128, 128, 1024) == pytest.approx(1e-6 + 2.505 * 2 * 128 * 128 * 1024 / 1e12)


def test_part_of_a_tile_counts_whole() -> None:
    assert one(PLAIN, 100, 65, 100, 4096) == one(PLAIN, 100, 128, 128, 4096)


def test_memory_bound_product() -> None:
    # one row of tokens: the weight's bytes decide
    moved = float(
        gemm_bytes(np.array([1.0]), np.array([1.0]), np.array([8192.0]), np.array([8192.0]), np.array([BF16]), np.array([False]))[0]
    )
    assert moved == 2 * (8192 + 8192 * 8192 + 8192)
    thin = GemmCurve(**{**PLAIN.__dict__, "tiles": ((16, 128),)})
    assert one(thin, 1, 1, 8192, 8192, moved) == pytest.approx(1e-6 + moved / 1e12, rel=0.02)


def test_accumulating_product_reads_and_writes_fp32() -> None:
    shape = [np.array([x]) for x in (1.0, 100.0, 200.0, 300.0)]
    plain = gemm_bytes(*shape, np.array([BF16]), np.array([False]))
    fused = gemm_bytes(*shape, np.array([BF16]), np.array([True]))
    assert float((fused - plain)[0]) == 100 * 200 * (8 - 2)


def test_split_k_helps_small_outputs_only() -> None:
    cheap = GemmCurve(**{**PLAIN.__dict__, "split": 0.0})
    # four tiles on 100 SMs, k = 8192: splitting by 8 uses 32 SMs
    assert one(cheap, 1, 256, 256, 8192) < 0.2 * one(PLAIN, 1, 256, 256, 8192)
    assert one(cheap, 1, 1280, 1280, 8192) == pytest.approx(one(PLAIN, 1, 1280, 1280, 8192))


def test_long_kernels_are_throttled() -> None:
    curve = GemmCurve(**{**PLAIN.__dict__, "throttle": 0.2, "settle": 1e-3})
    base = one(PLAIN, 1, 12800, 12800, 8192) - 1e-6
    assert one(curve, 1, 12800, 12800, 8192) - 1e-6 == pytest.approx(base * (1 + 0.2 * base / (base + 1e-3)))


def test_layout_factor_scales_compute() -> None:
    assert one(PLAIN, 1, 1280, 2560, 8192, factor=1.1) - 1e-6 == pytest.approx(1.1 * (one(PLAIN, 1, 1280, 2560, 8192) - 1e-6))
