"""Rows of a pass as engines run them: quantising, gates of linear attention, latent attention, sums with shared experts."""

from __future__ import annotations

import pytest

from windtunnel.serving import ServePlan, Server, server_of
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.graph import PassGraph
from windtunnel.serving.lengths import Passing, cache_bytes
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


@pytest.mark.parametrize("tp, sums", [(1, 0), (4, 1)])
def test_a_norm_over_all_heads_sums_squares_of_all_ranks(tp: int, sums: int) -> None:
    """MiniMax-M2: two sums of 4 bytes for each of 16 tokens are reduced, after a kernel that reads queries and keys."""
    rows = [op for op, _ in rows_of(server_of(load_model("minimax-m2"), "b200-ib", tp, "vllm", ServePlan(tp=tp)))]
    assert [op.bytes for op in rows if op.name == "qk squares reduce"] == sums * [8.0 * 16]
    assert [op.bytes for op in rows if op.name == "qk squares"] == sums * [2.0 * 16 * (48 + 8) / tp * 128]
    plain = rows_of(server_of(load_model("qwen3-235b-a22b"), "b200-ib", 4, "vllm", ServePlan(tp=4)))
    assert not any(op.name.startswith("qk squares") for op, _ in plain)


def test_experts_by_a_stated_kernel_are_slower_than_by_the_quickest() -> None:
    """TensorRT-LLM's NVFP4 on Blackwell; a kernel that was not timed in this format changes nothing."""
    quick, cutlass, other = (
        StepTimes(
            server_of(load_model("deepseek-v3"), "b200-ib", 8, "trtllm", ServePlan(tp=8), weights="nvfp4", expert_kernel=kernel)
        )
        for kernel in (None, "cutlass", "deepgemm")
    )
    one = Passing(0, 0, 0.0, 64, 64 * 2000.0)
    seconds = [times.pass_parts(one, 64)["experts"] for times in (quick, cutlass, other)]
    assert 1.3 < seconds[1] / seconds[0] < 3.0 and seconds[2] == seconds[0]


@pytest.mark.parametrize("release, longer", [("0.14.1", (1.2, 2.5)), ("0.15.0", (1.0, 1.0))])
def test_experts_of_vllm_before_0_15_are_tritons(release: str, longer: tuple[float, float]) -> None:
    """On Blackwell, where FlashInfer's were timed and are quicker; what is stated beats the release."""

    def seconds(**stated: str | None) -> float:
        server = server_of(load_model("glm-4.5-air"), "b200-ib", 2, "vllm", ServePlan(tp=2), weights="fp8_block", **stated)
        return StepTimes(server).pass_parts(Passing(4096, 1, 4096.0**2 / 2.0, 64, 64 * 2000.0), 64)["experts"]

    assert longer[0] <= seconds(release=release) / seconds() <= longer[1]
    assert seconds(release="0.15.0", expert_kernel="triton") == seconds(release="0.14.1")


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


@pytest.mark.parametrize("model, kernels", [("qwen3.5-397b-a17b", ["gate", "sigmoid", "scale"]), ("deepseek-v3", [])])
def test_a_gate_of_shared_experts_is_a_product_and_two_kernels(model: str, kernels: list[str]) -> None:
    rows = [op for op, _ in rows_of(server_of(load_model(model), "b200-ib", 8, "sglang", ServePlan(tp=8)))]
    made = [op for op in rows if op.name in ("shared gate", "shared sigmoid", "shared scale")]
    assert [op.name.removeprefix("shared ") for op in made] == kernels
    assert not made or (made[0].n, made[0].k, made[2].bytes) == (1, 4096, 2 * 2.0 * 16 * 4096)


@pytest.mark.parametrize("ep, active, copies", [(1, 222, 512.0), (8, 31, 64.0 + 10.56)])
def test_the_fullest_rank_of_experts_by_hand(ep: int, active: int, copies: float) -> None:
    """DeepSeek-V3, 64 tokens: an expert is chosen with 0.869; of 8 ranks' 32 experts 27.8 are in the mean, and 1.43 x 1.91 more on
    the fullest; of 64 copies there, 1.43 x 7.37 more."""
    server = server_of(load_model("deepseek-v3"), "b200-ib", 8, "vllm", ServePlan(tp=8, ep=ep))
    call = PassGraph(server).experts_call(64)
    assert (call.active, call.copies) == (active, pytest.approx(copies, abs=0.02))


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


def test_layers_that_reuse_keys_keep_no_cache() -> None:
    """Gemma 4 E2B in 16 bits: of 15 layers with keys of their own 3 see all tokens (2 x 512 wide), 12 the last 512 (2 x 256)."""
    token, state = cache_bytes(server_of(load_model("gemma4-e2b"), "h100-ib", 1, "vllm", ServePlan()))
    assert token == 3 * 2 * 512 * 2 and state == 12 * 2 * 256 * 2 * 512


def test_a_convolution_keeps_its_last_inputs() -> None:
    """LFM2 1.2B: 6 layers of attention with 8 heads of 64, 10 with 3 inputs of 2,048 channels."""
    token, state = cache_bytes(server_of(load_model("lfm2-1.2b"), "h100-ib", 1, "vllm", ServePlan()))
    assert token == 6 * 2 * 8 * 64 * 2 and state == 10 * 3 * 2048 * 2
