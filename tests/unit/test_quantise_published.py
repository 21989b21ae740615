"""What quantising costs beside its products, against Transformer Engine's own figures (docs/examples/gemm_profiling).

Milliseconds of the 12 products of a layer, hidden 4096, MLP 16384, 15,872 tokens, each with both of its operands quantised before
it ("autocast") and not ("pre-quantised"). Raw time of delayed scaling is current scaling's: the products are the same.
"""

from __future__ import annotations

import pytest

from windtunnel.compute import estimate
from windtunnel.compute.device import OVER_WIDE
from windtunnel.spec import load_gpu, load_runtime
from windtunnel.workload import Kind, Op, OpTable, Phase
from windtunnel.workload.blocks.quantise import RECIPES
from windtunnel.workload.ops import DTYPES

TOKENS = 15872
SHAPES = ((4096, 12288), (4096, 4096), (4096, 16384), (16384, 4096))
B300 = {
    "bf16": (12.758, 13.102),
    "current": (9.147, 6.812),
    "delayed": (7.802, 6.812),
    "mxfp8": (8.984, 7.161),
    "nvfp4": (6.453, 3.764),
}
H200 = {"bf16": (32.014, 31.968), "current": (20.285, 16.785), "delayed": (18.978, 16.785)}
CASES = [("b300-sxm", name) for name in B300 if name != "bf16"] + [("h200-sxm-141gb", name) for name in H200 if name != "bf16"]


def quantising(gpu: str, recipe: str) -> float:
    """Milliseconds of reading and writing every operand once, in a loop; block scales write both copies, as the benchmark does."""
    found = RECIPES[recipe]
    rows = []
    for k, n in SHAPES:
        for elements in (TOKENS * k, TOKENS * n, k * n) * 2:  # of three products two operands each
            if found.amax:
                rows.append(Op("amax", Kind.REDUCE, Phase.FORWARD, bytes=2.0 * elements))
            rows.append(Op("quantise", Kind.ELEMENTWISE, Phase.FORWARD, bytes=elements * (2 + (1 + found.blocks) * found.width)))
    precision = recipe if recipe in DTYPES else "fp8"
    runtime = load_runtime("nemo", precision=precision)
    return 1e3 * float(estimate(OpTable.of(rows), load_gpu(gpu), runtime, factors={}).seconds.sum())


@pytest.mark.parametrize("gpu, recipe", CASES)
def test_quantising_costs_what_transformer_engine_says(gpu: str, recipe: str) -> None:
    whole, products = (B300 if gpu == "b300-sxm" else H200)[recipe]
    assert quantising(gpu, recipe) == pytest.approx(whole - products, rel=0.4)


def test_rates_are_those_of_the_table() -> None:
    assert OVER_WIDE["blackwell"]["mxfp8"] == pytest.approx(B300["bf16"][1] / B300["mxfp8"][1], abs=0.005)
    assert OVER_WIDE["blackwell"]["nvfp4"] == pytest.approx(B300["bf16"][1] / B300["nvfp4"][1], abs=0.005)
