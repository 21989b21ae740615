"""Fused attention of a step under masks that hide more than half of the keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.compute import estimate
from windtunnel.compute.attention import attention_seconds
from windtunnel.compute.choose import choose
from windtunnel.compute.curves import AttentionCurve
from windtunnel.compute.device import device
from windtunnel.spec import load_gpu, load_runtime
from windtunnel.workload import Kind, Op, OpTable, Phase
from windtunnel.workload.blocks.core import visible
from windtunnel.workload.ops import DTYPES

H100 = load_gpu("h100-sxm-80gb")
DEV = device(H100, choose(H100).kernels)
CURVE = AttentionCurve(fraction=0.9, rows=128, wave=0.3, setup=100.0, head=60.0, causal=1.1, latency=6e-6)
BF16 = np.array([DTYPES.index("bf16")], np.int8)
FULL = {"forward": 4.0, "backward": 10.0}


def took(seq: int, window: int | None, way: str = "forward", batch: int = 256, k: int = 64) -> float:
    sizes = [np.array([float(x)]) for x in (batch, seq, seq, k)]
    flops = np.array([FULL[way] * batch * seq * visible(seq, window) * k])
    return float(attention_seconds(CURVE, DEV, way, *sizes, BF16, flops)[0])


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_a_block_of_queries_reads_more_keys_than_each_of_them_sees(way: str) -> None:
    """128 queries of a window of 128 see 255 keys, twice what each of them sees; of 4,096 keys, 3 % more."""
    pairs = {window: 1e3 * (took(65536, window, way) - CURVE.latency) / visible(65536, window) for window in (128, 4096)}
    fixed = {window: 1.0 + CURVE.setup / visible(65536, window) for window in pairs}
    assert pairs[128] / pairs[4096] == pytest.approx((1.0 + fixed[128]) / (128 / 4096 + fixed[4096]), rel=0.02)


@given(blocks=st.integers(2, 512), window=st.integers(1, 8192), more=st.integers(1, 8192))
def test_a_wider_window_never_takes_less_and_a_causal_mask_the_most(blocks: int, window: int, more: int) -> None:
    seq = 128 * blocks
    narrow, wide, causal = took(seq, min(window, seq)), took(seq, min(window + more, seq)), took(seq, None)
    assert narrow <= wide * (1 + 1e-9) and wide <= causal * (1 + 1e-9)


def test_a_window_states_more_error_than_a_causal_mask() -> None:
    ops = OpTable.of(
        [
            Op("a", Kind.ATTENTION, Phase.FORWARD, batch=64, m=8192, n=8192, k=128, flops=4.0 * 64 * 8192 * seen * 128)
            for seen in (visible(8192, None), visible(8192, 128), 0.0)
        ]
    )
    found = estimate(ops, H100, load_runtime("megatron-core"))
    assert (
        found.relative_error[1] > found.relative_error[0] == found.relative_error[2] and found.provenance[1] == found.provenance[0]
    )
    assert found.sources[found.source[1]].endswith("under a window")
