"""Kernel estimates a second through the public estimator, and the time to load a file of constants.

pytest benchmarks/test_estimate_speed.py        asserts no time
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.compute import estimate
from windtunnel.compute.kernel_file import FOLDER, read_kernels
from windtunnel.spec import load_gpu, load_runtime
from windtunnel.workload.ops import Kind, Op, OpTable, Phase

ROWS = 1_000_000
MIX = (
    Kind.GEMM,
    Kind.GEMM,
    Kind.GEMM,
    Kind.GEMM,
    Kind.ATTENTION,
    Kind.ATTENTION_BACKWARD,
    Kind.NORM,
    Kind.ELEMENTWISE,
    Kind.SOFTMAX,
    Kind.OPTIMIZER,
)


def table(rows: int) -> OpTable:
    """Mixed rows, four products in ten, of distinct shapes."""
    one = OpTable.of([Op("x", kind, Phase.FORWARD, batch=1, m=1, n=1, k=1) for kind in MIX])
    draw = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for name, column in vars(one).items():
        columns[name] = column * (rows // len(MIX)) if isinstance(column, tuple) else np.tile(column, rows // len(MIX))
    for name, low, high in (("m", 64, 16384), ("n", 256, 32768), ("k", 64, 16384)):
        columns[name] = draw.integers(low, high, rows).astype(columns[name].dtype)
    columns["bytes"] = draw.uniform(1e5, 1e9, rows)
    columns["flops"] = np.zeros(rows)
    return OpTable(**columns)


def test_estimates(benchmark: Any) -> None:
    ops, gpu, runtime = table(ROWS), load_gpu("h100-sxm-80gb"), load_runtime("megatron-core")
    found = benchmark.pedantic(estimate, (ops, gpu, runtime, {}), rounds=3)
    benchmark.extra_info["estimates_per_second"] = ROWS / benchmark.stats.stats.min
    assert len(found.seconds) == ROWS


def test_load(benchmark: Any) -> None:
    found = benchmark(read_kernels, FOLDER / "h100-sxm-80gb.json")
    assert found.id == "h100-sxm-80gb"
