"""Rows of a pass as engines run them: quantising, gates of linear attention, latent attention, sums with shared experts."""

from __future__ import annotations

import pytest

from windtunnel.serving import ServePlan, Server, server_of
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.graph import PassGraph
from windtunnel.serving.speculation import speculation_of
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model
from windtunnel.workload.ops import Kind, Op


def rows_of(server: Server, tokens: int = 16) -> list[tuple[Op, str]]:
    """Rows of the kind of layer that most layers are of."""
    graph = PassGraph(server)
    kind = max(graph.kinds, key=lambda entry: entry[1])[0]
    block = graph.layer(kind, tokens)
    return list(zip(block.rows, block.forms, strict=True))


@pytest.mark.parametrize("form, apart", [("fp8_block", True), ("fp8", False)])
@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
def test_scales_of_blocks_are_a_kernel_before_each_product(engine: str, form: str, apart: bool) -> None:
    """A dense layer has four products: one scale for a tensor is written by the norm or the activation before three of them."""
    rows = rows_of(server_of(load_model("qwen3-32b"), "h100-ib", 4, engine, ServePlan(tp=4), weights=form))
    products = [op for op, _ in rows if op.kind is Kind.GEMM]
    assert len(products) == 4
    assert sum(op.name.endswith("quantise") for op, _ in rows) == (4 if apart else 1)


@pytest.mark.parametrize(
    "engine, release, wide, narrow",
    [("sglang", "0.5.9", [3072, 2048], [16, 16]), ("sglang", "0.5.10", [5120], [32]), ("vllm", None, [5120], [32])],
)
def test_gates_of_linear_attention_by_hand(engine: str, release: str | None, wide: list[int], narrow: list[int]) -> None:
    """Qwen3.5 with tp 4: 2 x 2,048 / 4 of queries and keys, 2,048 of values, as many of the gate, 16 heads' decay and step."""
    server = server_of(load_model("qwen3.5-397b-a17b"), "b200-ib", 4, engine, ServePlan(tp=4), weights="fp8_block", release=release)
    made = [(op, form) for op, form in rows_of(server) if op.name == "in projection"]
    assert [op.n for op, form in made if form == "fp8_block"] == wide
    assert [op.n for op, form in made if form == "bf16"] == narrow
    assert sum(op.flops for op, _ in made) == pytest.approx(2.0 * 16 * 4096 * sum(wide + narrow))
    layout = next(op for op, _ in rows_of(server) if op.name == "gates layout")
    assert layout.launches == (2 if len(narrow) == 2 else 1)
    assert layout.bytes == 4.0 * 16 * (32 if len(narrow) == 2 else 5152)


@pytest.mark.parametrize("engine", ENGINES)
def test_latent_attention_has_a_product_of_each_head_before_and_after_it(engine: str) -> None:
    """DeepSeek-V3 with tp 8: 16 heads, 128 numbers of a query into 512 of the latent, and back into 128 of a value."""
    server = server_of(load_model("deepseek-v3"), "b200-ib", 8, engine, ServePlan(tp=8), weights="fp8_block")
    made = [(op.batch, op.n, op.k, form) for op, form in rows_of(server) if op.name == "kv up"]
    assert made == [(16, 512, 128, "bf16"), (16, 128, 512, "bf16")]


@pytest.mark.parametrize("engine, added", [("vllm", 1), ("sglang", 1), ("trtllm", 0)])
def test_shared_experts_are_added_unless_the_reduction_does_it(engine: str, added: int) -> None:
    server = server_of(load_model("deepseek-v3"), "b200-ib", 8, engine, ServePlan(tp=8), weights="fp8_block")
    assert sum(op.name == "shared add" for op, _ in rows_of(server)) == added
    plain = server_of(load_model("qwen3-235b-a22b"), "b200-ib", 8, engine, ServePlan(tp=8), weights="fp8_block")
    assert not [op for op, _ in rows_of(plain) if op.name == "shared add"]


def test_a_recurrence_over_a_prompt_is_several_calls() -> None:
    """Six kernels of the delta rule (fla's chunk.py) in 45 of 60 layers, one of attention in 15."""
    times = StepTimes(server_of(load_model("qwen3.5-397b-a17b"), "b200-ib", 4, "sglang", ServePlan(tp=4), weights="fp8_block"))
    rows = sum(count * sum(op.launches for op in times.graph.layer(kind, 512).rows) for kind, count, _ in times.kinds)
    assert times.calls == rows + 45 * 6 + 15 + 4 * 60


@pytest.mark.parametrize("release, ahead", [("0.5.10.post1", False), ("0.5.11", True), (None, True)])
def test_drafts_of_sglang_are_scheduled_ahead_from_a_release_on(release: str | None, ahead: bool) -> None:
    model = load_model("deepseek-v3")
    drafts = speculation_of("mtp,drafts=2", model, load_model)
    made = [
        server_of(model, "b200-ib", 8, "sglang", ServePlan(tp=8), weights="fp8_block", release=release, speculation=one)
        for one in (drafts, None)
    ]
    assert [one.engine.ahead for one in made] == [ahead, True]
