"""Laws of kernel times: more work never takes less, a faster GPU never more, and nothing beats the data sheet."""

from __future__ import annotations

import numpy as np
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.compute import estimate
from windtunnel.compute.estimate import WHOLE
from windtunnel.compute.kernel_file import available, load
from windtunnel.spec.machine import GPU
from windtunnel.spec.runtime import Host, Runtime
from windtunnel.workload.ops import Kind, Op, OpTable, Phase

RUNTIME = Runtime(framework="megatron", host=Host(launch=5e-6))
NAMES = [name for name in available()]
SIZE = st.integers(1, 20000)
MOVING = [Kind.NORM, Kind.ELEMENTWISE, Kind.SOFTMAX, Kind.CROSS_ENTROPY, Kind.EMBEDDING, Kind.OPTIMIZER, Kind.COPY, Kind.REDUCE]


def gpu(name: str, speed: float = 1.0) -> GPU:
    kernels = load(name)
    return GPU(
        id=name,
        name=name,
        architecture=kernels.architecture,
        peak={"bf16": f"{kernels.peak * speed / 1e12}TFLOP/s"},
        achievable={"bf16": f"{kernels.achievable * speed / 1e12}TFLOP/s"},
        memory="80GB",
        memory_bandwidth=f"{2000 * speed}GB/s",
        l2=kernels.l2,
        sms=int(kernels.sms),
    )


def time(machine: GPU, *rows: Op) -> np.ndarray:
    return estimate(OpTable.of(list(rows)), machine, RUNTIME).seconds


def gemm(batch: int, m: int, n: int, k: int) -> Op:
    return Op("g", Kind.GEMM, Phase.FORWARD, batch=batch, m=m, n=n, k=k, flops=2.0 * batch * m * n * k)


@examples(20)
@given(st.sampled_from(NAMES), st.integers(1, 64), SIZE, SIZE, SIZE, st.integers(0, 5000))
def test_gemm_is_monotone_in_every_size(name: str, batch: int, m: int, n: int, k: int, more: int) -> None:
    """Rows of a batch stay as aligned as they are: aligned ones run on tensor cores, and a wider one may be the first that is."""
    wider = more if batch == 1 else more - more % WHOLE
    base, *larger = time(
        gpu(name),
        gemm(batch, m, n, k),
        gemm(batch + more % 50, m, n, k),
        gemm(batch, m + more, n, k),
        gemm(batch, m, n + wider, k),
        gemm(batch, m, n, k + wider),
    )
    assert min(larger) >= base * (1 - 1e-9)


@examples(20)
@given(st.sampled_from(NAMES), st.integers(64, 65536), st.integers(512, 65536), st.integers(512, 32768))
def test_a_product_of_twice_a_side_takes_no_less_in_a_loop(name: str, m: int, n: int, k: int) -> None:
    rows = [gemm(1, m, n, k), gemm(1, 2 * m, n, k), gemm(1, m, 2 * n, k), gemm(1, m, n, 2 * k)]
    base, *larger = estimate(OpTable.of(rows), gpu(name), RUNTIME, factors={}).seconds
    assert min(larger) >= base * (1 - 1e-9)


@examples(20)
@given(st.sampled_from(NAMES), st.integers(1, 512), st.integers(16, 32768), st.integers(16, 256), st.booleans())
def test_no_kernel_beats_peak(name: str, heads: int, seq: int, dim: int, causal: bool) -> None:
    flops = (2.0 if causal else 4.0) * heads * seq * seq * dim
    rows = [
        Op("a", Kind.ATTENTION, Phase.FORWARD, batch=heads, m=seq, n=seq, k=dim, flops=flops),
        Op("b", Kind.ATTENTION_BACKWARD, Phase.DGRAD, batch=heads, m=seq, n=seq, k=dim, flops=2.5 * flops, launches=3),
        gemm(heads, seq, dim, seq),
        gemm(1, seq, heads * dim, heads * dim),
    ]
    machine = gpu(name)
    assert (time(machine, *rows) >= np.array([row.flops for row in rows]) / machine.peak["bf16"]).all()


@examples(20)
@given(
    st.sampled_from(NAMES),
    st.integers(1, 256),
    st.integers(128, 16384),
    st.sampled_from([64, 128, 256]),
    st.booleans(),
    st.integers(1, 4096),
)
def test_attention_is_monotone_in_heads_and_length(name: str, heads: int, seq: int, dim: int, causal: bool, more: int) -> None:
    def row(batch: int, length: int) -> Op:
        return Op(
            "a",
            Kind.ATTENTION,
            Phase.FORWARD,
            batch=batch,
            m=length,
            n=length,
            k=dim,
            flops=(2.0 if causal else 4.0) * batch * length**2 * dim,
        )

    base, wider, longer = time(gpu(name), row(heads, seq), row(heads + more, seq), row(heads, seq + more))
    assert wider >= base * (1 - 1e-9) and longer >= base * (1 - 1e-9)


@examples(20)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(MOVING),
    st.floats(1e3, 1e11),
    st.floats(1.0, 100.0),
    st.sampled_from([Phase.FORWARD, Phase.DGRAD]),
)
def test_moving_more_bytes_takes_longer(name: str, kind: Kind, size: float, factor: float, phase: Phase) -> None:
    base, larger = time(gpu(name), Op("x", kind, phase, bytes=size), Op("x", kind, phase, bytes=size * factor))
    assert larger >= base * (1 - 1e-9)


@examples(20)
@given(st.sampled_from(NAMES), st.floats(1.0, 8.0), SIZE, SIZE, SIZE, st.integers(1, 64))
def test_a_faster_gpu_is_never_slower(name: str, speed: float, m: int, n: int, k: int, heads: int) -> None:
    rows = [
        gemm(1, m, n, k),
        gemm(heads, m, n, k),
        Op("x", Kind.ELEMENTWISE, Phase.FORWARD, bytes=4.0 * m * n),
        Op("a", Kind.ATTENTION, Phase.FORWARD, batch=heads, m=m, n=m, k=128, flops=2.0 * heads * m * m * 128),
    ]
    assert (time(gpu(name, speed), *rows) <= time(gpu(name), *rows) * (1 + 1e-9)).all()


@examples(5)
@given(st.permutations(range(12)))
def test_rows_do_not_depend_on_their_neighbours(order: list[int]) -> None:
    rows = [
        Op(f"{i}", kind, Phase.FORWARD, batch=2, m=300 + i, n=700, k=64, flops=1e9, bytes=1e6 * (i + 1))
        for i, kind in enumerate(Kind)
    ]
    straight = time(gpu("a100-sxm-80gb"), *rows)
    assert (time(gpu("a100-sxm-80gb"), *[rows[i] for i in order]) == straight[order]).all()
