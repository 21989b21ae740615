"""Laws of a GPU that nobody measured: more of anything is never slower, and launches stay."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.compute import estimate
from windtunnel.spec import load_gpu
from windtunnel.spec.machine import GPU
from windtunnel.spec.runtime import Host, Runtime
from windtunnel.workload.ops import Kind, Op, OpTable, Phase

RUNTIME = Runtime(framework="megatron", host=Host(launch=5e-6))
BASES = [
    load_gpu(name)
    for name in ("a100-sxm-80gb", "h100-sxm-80gb", "h20", "b200-sxm-180gb", "gb200-nvl72", "l40s", "mi300x", "v100-sxm2-32gb")
]
SIZE = st.integers(1, 20000)
MORE = st.floats(1.0, 4.0)


def new(base: GPU, bandwidth: float = 1.0, flops: float = 1.0) -> GPU:
    peak = {key: value * flops for key, value in base.peak.items()}
    return base.model_copy(update={"id": "new", "peak": peak, "memory_bandwidth": base.memory_bandwidth * bandwidth})


def seconds(gpu: GPU, *rows: Op) -> np.ndarray:
    return estimate(OpTable.of(list(rows)), gpu, RUNTIME).seconds


def kernels(m: int, n: int, k: int, heads: int, seq: int, head: int) -> list[Op]:
    flops = 2.0 * heads * seq * seq * head
    return [
        Op("g", Kind.GEMM, Phase.FORWARD, m=m, n=n, k=k, flops=2.0 * m * n * k),
        Op("w", Kind.GEMM, Phase.WGRAD, m=n, n=k, k=m, flops=2.0 * m * n * k),
        Op("a", Kind.ATTENTION, Phase.FORWARD, batch=heads, m=seq, n=seq, k=head, flops=flops),
        Op("b", Kind.ATTENTION_BACKWARD, Phase.DGRAD, batch=heads, m=seq, n=seq, k=head, flops=2.5 * flops, launches=3),
        Op("n", Kind.NORM, Phase.FORWARD, m=m, n=n, bytes=4.0 * m * n),
    ]


SHAPES = st.builds(kernels, SIZE, SIZE, SIZE, st.integers(1, 256), st.integers(16, 32768), st.sampled_from([64, 80, 128, 256]))


@examples(25)
@given(st.sampled_from(BASES), SHAPES, MORE, MORE)
def test_more_bandwidth_and_flops_are_never_slower(base: GPU, rows: list[Op], bandwidth: float, flops: float) -> None:
    before = seconds(new(base), *rows)
    for better in (new(base, bandwidth), new(base, 1.0, flops), new(base, bandwidth, flops)):
        assert (seconds(better, *rows) <= before * (1 + 1e-9)).all()


@examples(15)
@given(st.sampled_from(BASES), MORE)
def test_launches_do_not_scale(base: GPU, factor: float) -> None:
    tiny = [
        Op("n", Kind.NORM, Phase.FORWARD, m=1, n=1, bytes=4.0),
        Op("e", Kind.ELEMENTWISE, Phase.FORWARD, m=1, n=1, bytes=6.0),
        Op("g", Kind.GEMM, Phase.FORWARD, m=1, n=1, k=1, flops=2.0),
    ]
    norm, pointwise, product = seconds(new(base, factor, factor), *tiny) / seconds(new(base), *tiny)
    assert norm == pytest.approx(1.0, rel=1e-3) and pointwise == pytest.approx(1.0, rel=1e-3)
    assert product > 0.5  # its one tile still computes
