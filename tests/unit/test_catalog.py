"""Every catalogue entry loads, says where it comes from, and agrees with published sizes."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path

import pytest

from tests.unit.published_sizes import RELEASED, ROUNDED
from windtunnel.spec import (
    Model,
    check,
    load_cluster,
    load_fabric,
    load_gpu,
    load_job,
    load_model,
    load_node,
    load_runtime,
    match_gpu,
    names,
)
from windtunnel.spec.loading.files import KINDS, ROOT
from windtunnel.workload import active_parameters, parameter_count

BILLION = 1e9

PUBLISHED = {
    # Narayanan et al., SC'21, Table 1
    "gpt-1.7b": 1.7,
    "gpt-3.6b": 3.6,
    "gpt-7.5b": 7.5,
    "gpt-18.4b": 18.4,
    "gpt-39.1b": 39.1,
    "gpt-76.1b": 76.1,
    "gpt-145.6b": 145.6,
    "gpt-310.1b": 310.1,
    "gpt-529.6b": 529.6,
    "gpt-1008b": 1008.0,
    # Korthikanti et al. 2022, Table 3; MegaScale, Table 1
    "megatron-22b": 22,
    "gpt3-175b": 174.6,
    "mt-nlg-530b": 530,
    "megatron-1t": 1008,
    "megascale-175b": 175,
    "megascale-530b": 530,
    # sizes of the released weights
    "llama1-7b": 6.738,
    "llama1-13b": 13.016,
    "llama1-30b": 32.529,
    "llama1-65b": 65.286,
    "llama2-7b": 6.738,
    "llama2-13b": 13.016,
    "llama2-70b": 68.977,
    "llama3-8b": 8.030,
    "llama3-70b": 70.554,
    "llama3.1-8b": 8.030,
    "llama3.1-70b": 70.554,
    "llama3.1-405b": 405.853,
    "llama3.2-1b": 1.236,
    "llama3.2-3b": 3.213,
    # llm-foundry scripts/train/benchmarking, NumParams at 2048 tokens (1B and below: at 2048 too)
    "mpt-125m": 0.125,
    "mpt-350m": 0.356,
    "mpt-760m": 0.760,
    "mpt-1b": 1.316,
    "mpt-3b": 2.652,
    "mpt-7b": 6.659,
    "mpt-13b": 12.854,
    "mpt-30b": 29.975,
    "mpt-70b": 64.862,
    # BLOOM and OPT model cards
    "bloom-560m": 0.559215,
    "bloom-1b1": 1.065314,
    "bloom-1b7": 1.722409,
    "bloom-3b": 3.002557,
    "bloom-7b1": 7.069016,
    "bloom-176b": 176.247271,
    "opt-125m": 0.125,
    "opt-350m": 0.35,
    "opt-1.3b": 1.316,
    "opt-2.7b": 2.652,
    "opt-6.7b": 6.658,
    "opt-13b": 12.853,
    "opt-30b": 29.975,
    "opt-66b": 65.72,
    "opt-175b": 175,
    "gpt-neox-20b": 20.555,
    "gpt-j-6b": 6.05,
    "nemotron4-15b": 15.6,
    "nemotron4-340b": 341.0,
    "qwen2.5-0.5b": 0.494,
    "qwen2.5-1.5b": 1.544,
    "qwen2.5-3b": 3.086,
    "qwen2.5-7b": 7.616,
    "qwen2.5-14b": 14.770,
    "qwen2.5-32b": 32.764,
    "qwen2.5-72b": 72.706,
    # sizes of the released weights, without layers that predict further tokens and without vision encoders
    "mixtral-8x7b": 46.703,
    "mixtral-8x22b": 140.630,
    "deepseek-v2-lite": 15.706,
    "deepseek-v2": 235.741,
    "deepseek-v3": 671.026,
    "kimi-k2": 1026.47,
    "qwen3-0.6b": 0.596,
    "qwen3-1.7b": 1.7206,
    "qwen3-4b": 4.022,
    "qwen3-8b": 8.191,
    "qwen3-14b": 14.768,
    "qwen3-32b": 32.762,
    "qwen3-30b-a3b": 30.532,
    "qwen3-235b-a22b": 235.094,
    # model cards: gpt-oss (arXiv 2508.10925) table 1; Llama 4 less its vision encoder of 0.87; Gemma 3 (arXiv 2503.19786) table 1
    "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83,
    "llama4-scout": 107.77,
    "llama4-maverick": 400.71,
    "gemma3-1b": 1.0,
    "gemma3-4b": 3.884,
    "gemma3-12b": 11.771,
    "gemma3-27b": 27.016,
    # parameters of transformers' Gemma4ForCausalLM with these sizes (5.23.0)
    "gemma4-31b": 30.697,
    "gemma4-26b-a4b": 25.233,
    # the same, text models alone; LFM2's are those of its released weights too
    "gemma4-e2b": 4.628569344,
    "gemma4-e4b": 7.463013376,
    "lfm2-350m": 0.354483968,
    "lfm2-700m": 0.742489344,
    "lfm2-1.2b": 1.170340608,
    "lfm2-8b-a1b": 8.339929856,
    "lfm2.5-8b-a1b": 8.467856128,
    # figures of model cards: Mistral Large 3 less its vision encoder of 2.5, Step 3.5 with embedding and head; Muse Glimmer 29.6
    # less its encoder of 1.85 (50 layers of 1,536)
    "gemma4-12b": 11.9,
    "devstral-2-123b": 123.0,
    "mistral-small-4-119b": 119.0,
    "mistral-large-3-675b": 673.0,
    "step-3.5-flash": 196.81,
    "laguna-xs": 33.4,
    "hy3-295b-a21b": 295.0,
    "muse-glimmer-30b": 27.75,
    "trinity-nano": 6.12,
    "trinity-mini": 26.12,
    "trinity-large": 398.6,
    "mimo-v2.5-pro": 1020.0,
    # sizes of the released weights: Nemotron-H (arXiv 2504.03624), Nemotron 3, Qwen3-Next, Kimi Linear, without further tokens
    "nemotron-h-8b": 8.101,
    "nemotron-h-47b": 46.79,
    "nemotron-h-56b": 56.32,
    "nemotron-3-nano-30b-a3b": 31.578,
    "nemotron-3-super-120b-a12b": 120.67,
    "qwen3-next-80b-a3b": 79.674,
    "kimi-linear-48b-a3b": 49.12,
    # parameters of transformers' classes with these sizes
    "qwen3.5-0.8b": 0.752,
    "qwen3.5-2b": 1.882,
    "qwen3.5-4b": 4.206,
    "qwen3.5-9b": 8.954,
    "qwen3.5-27b": 26.896,
    "qwen3.5-35b-a3b": 34.661,
    "qwen3.5-122b-a10b": 122.112,
    "qwen3.5-397b-a17b": 396.346,
    "moonlight-16b-a3b": 15.960,
    "glm-5-744b-a40b": 743.911,
    # with their vision encoders; LLaVA 7.063 with the last layer of CLIP, which it does not use
    "llava-1.5-7b": 7.051,
    "qwen2.5-vl-7b": 8.292,
    "gemma3-4b-vision": 4.300,
    "gemma3-27b-vision": 27.432,
    "llama4-scout-vision": 108.642,
    # Grok-1 prints 314, which is its layers without the embedding; PaLM (arXiv 2204.02311) table 1
    "grok-1": 314.88 + 0.805,
    "palm-8b": 8.63,
    "palm-62b": 62.50,
    "palm-540b": 540.35,
}
"""Billions of parameters."""
PUBLISHED |= RELEASED


def parameters(model: Model) -> int:
    """Weights, biases and norms of a decoder, counted from the block diagram (independently of `workload`)."""
    h, f, queries, keys = model.hidden, model.ffn, model.q_heads_dim, model.groups * model.dim_per_head
    wide = model.global_head_dim or model.dim_per_head  # of layers without the window
    far = (
        h
        * wide
        * (2 * (model.global_heads or model.heads) + (model.global_kv_heads or model.groups) * (1 if model.global_shared_kv else 2))
    )
    apart = model.global_head_dim is not None or model.global_heads is not None
    norm = h * (2 if model.norm == "layernorm" else 1)
    attention = h * (queries * (2 if model.attention_gate else 1) + 2 * keys) + queries * h
    if model.kv_lora_rank:
        heads, rank = model.heads, model.kv_lora_rank
        attention = h * (rank + model.qk_rope_dim) + rank + rank * heads * (model.qk_nope_dim + model.v_dim)
        attention += heads * model.v_dim * h
        wide = heads * (model.qk_nope_dim + model.qk_rope_dim)
        attention += (h + 1 + wide) * model.q_lora_rank if model.q_lora_rank else h * wide
    if model.attention_bias:
        attention += queries + 2 * keys
    if model.linear_bias:
        attention += h

    def indexer(vectors: int) -> int:  # queries of all heads, one key (or a compressor's four vectors), a weight a head
        return (model.q_lora_rank or h) * model.index_heads * model.index_dim + h * (vectors * model.index_dim + model.index_heads)

    def one(f: int) -> int:
        return (3 if model.gated else 2) * h * f + ((f * (2 if model.gated else 1) + h) if model.linear_bias else 0)

    def feed(layer: int) -> int:
        if model.kinds[layer].feed == "none":
            return 0
        if not model.kinds[layer].experts:
            return one((model.reuse_ffn or f) if model.kinds[layer].mixer == "reused_attention" else f)
        latent = model.moe_latent or h
        expert = one(model.expert_width) * latent // h
        experts = (model.experts or 0) * (expert + h + (1 if model.linear_bias else 0))
        around = 2 * h * latent if model.moe_latent else 0
        return experts + around + (one(model.shared_ffn) if model.shared_ffn else 0)

    def mixer(layer: int) -> int:
        kind = model.kinds[layer].mixer
        if kind == "mamba2":
            heads, inner, shared = model.ssm_heads or 0, model.ssm_width, model.ssm_groups * model.ssm_state
            channels = inner + 2 * shared
            return h * (inner + channels + heads) + 5 * channels + 3 * heads + inner + inner * h
        if kind == "linear_attention":
            heads, k, v = model.linear_heads or 0, model.linear_keys, model.linear_values
            if model.linear_decay == "head":  # Qwen3NextGatedDeltaNet: qkvz, ba, convolution, A_log, dt_bias, norm, out
                return h * (2 * k + 2 * v) + h * 2 * heads + 4 * (2 * k + v) + 2 * heads + model.linear_value_dim + v * h
            low = model.linear_value_dim  # KimiDeltaAttention: q, k, v, f_a, f_b, g_a, g_b, b, convolutions, A_log, dt_bias, norm
            return h * (2 * k + v) + low * (2 * h + k + v) + h * heads + 4 * (2 * k + v) + heads + k + low + v * h
        if kind == "gated_convolution":
            return 4 * h * h + model.conv_width * h
        if kind == "reused_attention":  # queries and output alone
            return (
                2
                * h
                * model.heads
                * (model.dim_per_head if model.kinds[layer].local else model.global_head_dim or model.dim_per_head)
            )
        if apart and kind == "self_attention" and not model.kinds[layer].local:
            return far
        if kind in ("compressed_attention", "heavy_attention"):  # wq_a, wq_b, wkv, compressor, wo_a, wo_b, norms, sinks
            q, wide, light = model.q_lora_rank or 0, model.heads * model.dim_per_head, kind == "compressed_attention"
            out = wide * model.o_lora_rank + model.o_groups * model.o_lora_rank * h
            small = q + model.dim_per_head + model.heads
            return q * (h + wide) + h * model.dim_per_head * (5 if light else 3) + out + small + (indexer(4) if light else 0)
        picks = indexer(1 if model.index_pool == 1 else 4) if model.sparse_keys and model.kinds[layer].local else 0
        return attention + picks if kind in ("self_attention", "latent_attention") else 0

    outer = model.vocab * h * (1 if model.tied_embeddings else 2) + (model.max_seq * h if model.position == "learned" else 0)
    outer += norm * (2 if model.embedding_norm else 1)
    if model.per_layer_dim:  # a table, its projection and norm; gate, projection and norm of each layer
        narrow, deep = model.per_layer_dim, model.layers * model.per_layer_dim
        outer += deep * (model.vocab + h) + narrow + model.layers * (2 * narrow * h + norm)
    norms = norm * (1 if model.parallel_block or model.one_module_layers else 4 if model.post_norms else 2)
    streams = model.residual_streams
    norms += 2 * ((2 + streams) * streams * (streams * h + 1) + 3) if streams > 1 else 0
    return sum(mixer(layer) + norms + feed(layer) for layer in range(model.layers)) + outer + images(model)


def images(model: Model) -> int:
    """The vision encoder and its projector, likewise."""
    vision = model.vision
    if vision is None:
        return 0
    h, gated = vision.hidden, vision.activation == "swiglu"
    norm, bias = h * (2 if vision.norm == "layernorm" else 1), 1 if vision.linear_bias else 0
    layer = 4 * h * h + (3 if gated else 2) * h * vision.ffn + 2 * norm + bias * (4 * h + vision.ffn * (2 if gated else 1) + h)
    side = vision.image // vision.patch
    first = 3 * vision.frames * vision.patch**2 * h + (h if vision.patch_bias else 0)
    first += (side * side + vision.class_token) * h * (vision.position == "learned") + h * vision.class_token
    widths = [h * (vision.merge**2 if vision.merge_by == "concat" else 1), *vision.projector, model.hidden]
    mlp = sum(a * b + (b if vision.projector_bias else 0) for a, b in zip(widths, widths[1:], strict=False))
    return vision.layers * layer + first + norm * (vision.pre_norm + vision.post_norm) + mlp


def test_every_model_has_a_published_size() -> None:
    assert set(PUBLISHED) == set(names("models"))


def test_parameters_within_two_percent_of_the_published_size() -> None:
    sizes = {name: parameters(load_model(name)) / BILLION for name in names("models")}
    for name, size in sizes.items():
        rounding = 0.05 if name.startswith("gpt-") else 0.0  # SC'21 prints one decimal: 1.65 billion appear as 1.7
        assert size == pytest.approx(PUBLISHED[name], rel=0.02, abs=rounding), name


def test_both_counts_of_released_weights_are_within_one_percent() -> None:
    for name, released in RELEASED.items():
        model, share = load_model(name), 0.02 if name in ROUNDED else 0.005
        assert parameters(model) / BILLION == pytest.approx(released, rel=share), name
        assert parameter_count(model) / BILLION == pytest.approx(released, rel=share), name


def test_models_with_rotary_positions_say_their_base() -> None:
    rotary = [model for model in map(load_model, names("models")) if model.position == "rope"]
    assert [model.name for model in rotary if model.numerics is None or model.numerics.rope_base is None] == []


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gemma4-e2b", 4_628_569_344),
        ("gemma4-e4b", 7_463_013_376),
        ("lfm2-350m", 354_483_968),
        ("lfm2-700m", 742_489_344),
        ("lfm2-1.2b", 1_170_340_608),
        ("lfm2-8b-a1b", 8_339_929_856),
        ("lfm2.5-8b-a1b", 8_467_856_128),
    ],
)
def test_parameters_to_the_unit(name: str, count: int) -> None:
    """Those of transformers 5.24's Gemma4ForCausalLM, Lfm2ForCausalLM and Lfm2MoeForCausalLM, without buffers."""
    assert parameter_count(load_model(name)) == count


MIXED = [
    name
    for name in sorted({*names("models")} - {*ROUNDED})
    if load_model(name).experts or name.startswith(("qwen3", "gemma3", "gemma4", "palm", "nemotron-h")) or load_model(name).vision
]


@pytest.mark.parametrize("name", MIXED)
def test_both_counts_are_within_half_a_percent_of_the_published_size(name: str) -> None:
    model = load_model(name)
    assert parameter_count(model) / BILLION == pytest.approx(PUBLISHED[name], rel=0.005)
    assert parameter_count(model) == pytest.approx(parameters(model), rel=1e-4)  # inner norms and sinks are not in the second


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("mixtral-8x7b", 12.9),
        ("mixtral-8x22b", 39.1),
        ("deepseek-v2", 21.4),
        ("qwen3-235b-a22b", 22.2),
        ("kimi-k2", 32.9),
        ("llama4-maverick", 17.2),
        ("gemma4-26b-a4b", 3.8),
        ("nemotron-3-nano-30b-a3b", 3.6),
        ("nemotron-3-super-120b-a12b", 12.7),
        ("trinity-large", 13.4),
        ("mimo-v2.5-pro", 41.9),
    ],
)
def test_active_parameters_are_those_printed(name: str, billions: float) -> None:
    assert active_parameters(load_model(name)) / BILLION == pytest.approx(billions, abs=0.1)


@pytest.mark.parametrize("name", ["bloom-560m", "bloom-176b", "llama3-8b", "llama3.1-405b", "qwen2.5-7b", "mpt-7b"])
def test_parameters_of_released_weights_are_exact(name: str) -> None:
    assert parameters(load_model(name)) / BILLION == pytest.approx(PUBLISHED[name], rel=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_have_a_source_and_are_named_after_their_files(kind: str) -> None:
    for name in names(kind):
        table = tomllib.loads((ROOT / kind / f"{name}.toml").read_text())
        assert len(table["source"]) > 5, name
        key = {"models": "name", "jobs": "name", "frameworks": "framework"}.get(kind, "id")
        named = table.get(key, name)
        if kind == "frameworks" and named != name:  # a name of another framework
            table = tomllib.loads((ROOT / kind / f"{named}.toml").read_text())
            named = name = str(table.get(key, named))
        assert named == name and name in names(kind)


@pytest.mark.parametrize("name", names("gpus"))
def test_gpu_is_found_by_what_its_tool_prints(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.names
    for printed in (*gpu.names, gpu.id):
        assert match_gpu(printed).id == name
    if gpu.kernels_from is not None:
        assert load_gpu(gpu.kernels_from).kernels_from is None
    for precision, rate in gpu.achievable.items():
        assert 0.3 * gpu.peak[precision] < rate < gpu.peak[precision]
    assert 0.25e12 < gpu.memory_bandwidth < 25e12 and 14 * 2**30 < gpu.memory < 300 * 2**30


@pytest.mark.parametrize("name", names("nodes"))
def test_node(name: str) -> None:
    node = load_node(name)
    assert node.scale_up.source and (node.nic is None or node.nic.source)
    assert node.scale_up.size % node.gpus == 0


@pytest.mark.parametrize(
    ("name", "scale_up", "per_node"),
    [
        ("dgx-a100-80gb", 300e9, 200e9),
        ("hgx-a800-80gb", 200e9, 200e9),
        ("dgx-h100", 450e9, 400e9),
        ("hgx-h800", 200e9, 400e9),
        ("hgx-b200", 900e9, 400e9),
        ("vr200-nvl144", 1800e9, 800e9),
        ("gb200-nvl72", 900e9, 200e9),
        ("p4d.24xlarge", 300e9, 50e9),
        ("p5.48xlarge", 450e9, 400e9),
        ("jean-zay-a100", 300e9, 50e9),
        ("dgx-2", 150e9, 100e9),
        ("hgx-a100-80gb-4nic", 300e9, 100e9),
    ],
)
def test_published_bandwidths(name: str, scale_up: float, per_node: float) -> None:
    node = load_node(name)
    assert node.scale_up.bandwidth == scale_up
    assert node.nic is not None and node.nic.count * node.nic.bandwidth == pytest.approx(per_node)


@pytest.mark.parametrize("name", names("fabrics"))
def test_fabric(name: str) -> None:
    fabric = load_fabric(name)
    assert fabric.id == name and fabric.pod_nodes >= fabric.leaf_nodes


@pytest.mark.parametrize("name", names("clusters"))
def test_cluster_is_whole_nodes(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.gpus % cluster.node.gpus == 0 and cluster.price_per_gpu_hour


@pytest.mark.parametrize("launch", ["eager", "compile", "cuda_graph"])
@pytest.mark.parametrize("name", names("frameworks"))
def test_framework(name: str, launch: str) -> None:
    runtime = load_runtime(name, launch=launch)
    assert runtime.host.source and 0 < runtime.host.launch < 50e-6
    for precision in ("fp16", "bf16"):
        assert load_runtime(name, precision=precision).weight_dtype == precision


@pytest.mark.parametrize("name", ["libai", "litgpt-thunder", "paddlenlp", "unnamed", "internevo"])
def test_an_entry_stands_over_the_releases_of_its_base(name: str) -> None:
    """What Megatron-LM's or PyTorch's later versions switch on is not what another program says of itself."""
    entry = tomllib.loads((ROOT / "frameworks" / f"{name}.toml").read_text(encoding="utf-8"))
    stated = {field: value for field, value in entry.items() if isinstance(value, (bool, str)) and field not in ("base", "source")}
    runtime = load_runtime(name)
    assert stated.keys() & {"fused_wgrad", "overlap_tp_dgrad", "attention_library"}
    assert {field: getattr(runtime, field) for field in stated} == stated


@pytest.mark.parametrize("name", names("jobs"))
def test_job_has_no_contradiction_and_says_days_and_dollars(name: str) -> None:
    job = check(load_job(name))
    assert job.tokens and job.cluster.price_per_gpu_hour and job.cluster.gpu.power_w


def test_the_job_of_the_demo() -> None:
    job = load_job("megascale-175b-12288")
    assert (job.plan.tp, job.plan.pp, job.plan.vpp, job.dp, job.plan.global_batch, job.plan.seq) == (8, 8, 6, 192, 6144, 2048)
    assert (job.cluster.gpus, job.model.vocab, job.micro_batches, job.tokens) == (12288, 64000, 32, 300e9)


def test_gpus_of_the_published_rows_are_in_the_catalogue(shared: Path) -> None:
    with (shared / "reality" / "training.csv").open() as file:
        used = {row["gpu"] for row in csv.DictReader(file)}
    assert used <= set(names("gpus"))
