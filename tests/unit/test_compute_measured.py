"""Which measured rows answer for a row of a graph, and with what time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from windtunnel.compute import Estimate, Measured, Provenance, TrainingFactor, estimate
from windtunnel.records import About, dataset
from windtunnel.spec import load_gpu, load_runtime
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

A100 = load_gpu("a100-sxm-80gb")
RUNTIME = load_runtime("megatron-core")
LOOP = {"ampere": TrainingFactor()}
GEMM = {
    "level": "kernel",
    "op": "gemm",
    "name": "mlp_up",
    "phase": "forward",
    "dtype": "bf16",
    "mode": "eager",
    "m": 4096,
    "n": 8192,
    "k": 2048,
    "seconds": 1e-3,
    "seconds_std": 5e-5,
    "status": "ok",
    "source": "by hand",
}
PRODUCT = Op("up", Kind.GEMM, Phase.FORWARD, m=4096, n=8192, k=2048, flops=2.0 * 4096 * 8192 * 2048)
ADD = Op("add", Kind.ELEMENTWISE, Phase.FORWARD, bytes=3e8)
NORM = Op("norm", Kind.NORM, Phase.FORWARD, m=8192, n=4096, bytes=2 * 2.0 * 8192 * 4096)


def ask(op: Op, *rows: dict[str, Any], factors: Any = LOOP, runtime: Any = RUNTIME) -> Estimate:
    data = dataset(About(gpu="a100-sxm-80gb", source="by hand"), [GEMM | row for row in rows])
    return estimate(OpTable.of([op]), A100, runtime, factors, Measured(data))


def curve(op: Op, factors: Any = LOOP) -> float:
    return float(estimate(OpTable.of([op]), A100, RUNTIME, factors).seconds[0])


def flash(seq: int, backward: bool = False) -> Op:
    kind, phase, products = (Kind.ATTENTION_BACKWARD, Phase.DGRAD, 10.0) if backward else (Kind.ATTENTION, Phase.FORWARD, 4.0)
    flops = products * 32 * seq * 128 * (seq + 1) / 2
    return Op("attention", kind, phase, batch=32, m=seq, n=seq, k=128, flops=flops, launches=3 if backward else 1)


def core(seq: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {"op": "attention", "batch": 32, "m": seq, "n": seq, "k": 128, "causal": True, "seconds": seconds} | more


def test_same_kernel() -> None:
    found = ask(PRODUCT, {})
    assert found.seconds[0] == pytest.approx(1e-3, rel=1e-12)
    assert found.provenance[0] == Provenance.MEASURED
    assert found.relative_error[0] == pytest.approx(0.05)
    assert found.sources[found.source[0]] == "by hand: the same kernel"


@pytest.mark.parametrize(
    "other",
    [
        {"n": 8191},
        {"k": 4096},
        {"m": 8192},
        {"phase": "dgrad"},
        {"batch": 2},
        {"dtype": "fp8"},
        {"mode": "compile"},
        {"status": "open"},
        {"op": "norm"},
    ],
)
def test_another_kernel_is_not_used(other: dict[str, Any]) -> None:
    found = ask(PRODUCT, other)
    assert found.seconds[0] == curve(PRODUCT)
    assert found.provenance[0] == Provenance.MODELLED


def test_half_formats_are_neighbours_only() -> None:
    found = ask(PRODUCT, {"dtype": "fp16"})
    assert found.seconds[0] == pytest.approx(1e-3)
    assert found.provenance[0] == Provenance.INTERPOLATED


def test_between_neighbours_by_logarithm() -> None:
    low, high = replace_m(2048), replace_m(8192)
    found = ask(PRODUCT, {"m": 2048, "seconds": 1.1 * curve(low)}, {"m": 8192, "seconds": 1.4 * curve(high)})
    # 4096 lies half way by logarithm: the geometric mean of 1.1 and 1.4 times the curve
    assert found.seconds[0] == pytest.approx(math.sqrt(1.1 * 1.4) * curve(PRODUCT))
    assert found.provenance[0] == Provenance.INTERPOLATED
    noise = 5e-5 / (1.1 * curve(low))
    assert found.relative_error[0] == pytest.approx(math.sqrt(noise**2 + 0.03**2 + (0.5 * math.log(1.4 / 1.1)) ** 2))


def replace_m(m: int) -> Op:
    return PRODUCT._replace(m=m, flops=2.0 * m * 8192 * 2048)


def test_beyond_the_last_neighbour_and_over_a_wide_gap_the_curve_counts() -> None:
    assert ask(PRODUCT, {"m": 1024}, {"m": 2048}).provenance[0] == Provenance.MODELLED
    assert ask(PRODUCT, {"m": 512}, {"m": 512 * 17}).provenance[0] == Provenance.MODELLED
    assert ask(PRODUCT, {"m": 512}, {"m": 512 * 16}).provenance[0] == Provenance.INTERPOLATED


def test_a_weight_gradient_runs_over_its_inner_dimension() -> None:
    grad = Op("up wgrad", Kind.GEMM, Phase.WGRAD, m=8192, n=2048, k=4096, flops=PRODUCT.flops)
    rows = [{"phase": "wgrad", "m": 8192, "n": 2048, "k": k} for k in (2048, 8192)]
    assert ask(grad, *rows).provenance[0] == Provenance.INTERPOLATED
    assert ask(grad, *[row | {"phase": "dgrad"} for row in rows]).provenance[0] == Provenance.MODELLED


def test_launches_of_a_row_each_take_the_measured_time() -> None:
    experts = PRODUCT._replace(batch=4, launches=4, flops=4 * PRODUCT.flops)
    assert ask(experts, {}).seconds[0] == pytest.approx(4e-3)


def test_the_median_of_rows_that_say_the_same() -> None:
    found = ask(PRODUCT, {"seconds": 1e-3}, {"seconds": 1.9e-3}, {"seconds": 1.2e-3})
    assert found.seconds[0] == pytest.approx(1.2e-3)


def test_the_runtime_s_own_mode_comes_first() -> None:
    compiled = RUNTIME.model_copy(update={"launch": "compile"})
    rows = [{"seconds": 1e-3}, {"seconds": 2e-3, "mode": "compile"}]
    assert ask(PRODUCT, *rows, runtime=compiled).seconds[0] == pytest.approx(2e-3)
    assert ask(PRODUCT, rows[0], runtime=compiled).seconds[0] == pytest.approx(1e-3)  # a product is the same kernel in both
    add = {"op": "elementwise", "m": None, "n": None, "k": None, "bytes": 3e8}
    assert ask(ADD, add, runtime=compiled).provenance[0] == Provenance.MODELLED  # pointwise kernels are fused when compiled


def test_attention_by_sequence_mask_and_library() -> None:
    found = ask(flash(4096), core(4096, 2e-3))
    assert (found.seconds[0], found.provenance[0]) == (pytest.approx(2e-3), Provenance.MEASURED)
    between = ask(flash(4096), core(2048, 2.0 * curve(flash(2048))), core(8192, 2.0 * curve(flash(8192))))
    assert between.seconds[0] == pytest.approx(2.0 * curve(flash(4096)), rel=1e-3)
    assert between.provenance[0] == Provenance.INTERPOLATED
    for other in ({"causal": None}, {"window": 1024}, {"phase": "backward"}, {"library": "fa3"}, {"k": 64}):
        assert ask(flash(4096), core(4096, 2e-3, **other)).provenance[0] > Provenance.INTERPOLATED, other
    back = ask(flash(4096, backward=True), core(4096, 5e-3, phase="backward"))
    assert (back.seconds[0], back.provenance[0]) == (pytest.approx(5e-3), Provenance.MEASURED)


def test_pointwise_kernels_by_bytes() -> None:
    add = {"op": "elementwise", "m": None, "n": None, "k": None, "bytes": 3e8}
    assert ask(ADD, add).seconds[0] == pytest.approx(1e-3)
    twice = ADD._replace(bytes=6e8, launches=2)
    assert ask(twice, add).seconds[0] == pytest.approx(2e-3)
    rows = [add | {"bytes": size, "seconds": 1.3 * curve(ADD._replace(bytes=size))} for size in (1e8, 9e8)]
    found = ask(ADD, *rows)
    assert (found.seconds[0], found.provenance[0]) == (pytest.approx(1.3 * curve(ADD)), Provenance.INTERPOLATED)


def test_a_chain_of_unfused_kernels_is_not_the_fused_one() -> None:
    row = {"op": "norm", "m": 8192, "n": 4096, "k": None, "bytes": NORM.bytes}
    assert ask(NORM, row).provenance[0] == Provenance.MEASURED
    assert ask(NORM, row | {"bytes": None}).provenance[0] == Provenance.MEASURED
    chain = NORM._replace(bytes=5.5 * NORM.bytes, launches=6)
    assert ask(chain, row).provenance[0] == Provenance.MODELLED


def test_megatron_s_softmax_is_another_kernel() -> None:
    op = Op("softmax", Kind.SOFTMAX, Phase.FORWARD, dtype=DTYPES.index("bf16"), m=65536, n=2048, bytes=5e8)
    row = {"op": "softmax", "m": 65536, "n": 2048, "k": None, "bytes": 5e8}
    fused = RUNTIME.model_copy(update={"attention": "fused_softmax"})
    assert ask(op, row, runtime=fused).provenance[0] != Provenance.MEASURED
    assert ask(op, row | {"library": "megatron"}, runtime=fused).provenance[0] == Provenance.MEASURED


def test_training_factors_apply_to_loops_and_not_to_running_layers() -> None:
    slower = {"ampere": TrainingFactor(memory=1.5)}
    add = {"op": "elementwise", "m": None, "n": None, "k": None, "bytes": 3e8}
    assert ask(ADD, add, factors=slower).seconds[0] == pytest.approx(1.5e-3)
    assert ask(ADD, add | {"shape": "hidden=4096 seq=2048"}, factors=slower).seconds[0] == pytest.approx(1e-3)


def test_an_empty_profile_and_an_empty_graph() -> None:
    data = dataset(About(gpu="a100-sxm-80gb"), [])
    assert estimate(OpTable.of([PRODUCT]), A100, RUNTIME, LOOP, Measured(data)).seconds[0] == curve(PRODUCT)
    full = Measured(dataset(About(gpu="a100-sxm-80gb"), [GEMM]))
    assert len(estimate(OpTable.of([]), A100, RUNTIME, LOOP, full).seconds) == 0
    wait = PRODUCT._replace(launches=0)
    assert estimate(OpTable.of([wait]), A100, RUNTIME, LOOP, full).seconds[0] == 0.0


def test_order_of_rows_does_not_matter() -> None:
    rng = np.random.default_rng(7)
    sizes, times = rng.integers(64, 9000, 40), rng.uniform(1e-3, 2e-3, 40)
    rows = [GEMM | {"m": int(m), "seconds": float(s)} for m, s in zip(sizes, times, strict=True)]
    ops = OpTable.of([replace_m(int(m)) for m in rng.integers(64, 9000, 30)])
    about = About(gpu="a100-sxm-80gb")
    first = estimate(ops, A100, RUNTIME, LOOP, Measured(dataset(about, rows)))
    second = estimate(ops, A100, RUNTIME, LOOP, Measured(dataset(about, rows[::-1])))
    np.testing.assert_array_equal(first.seconds, second.seconds)
