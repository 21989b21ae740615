"""Which number formats a checkpoint has, by its name on a hub or its config.json, and what they cost."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.dtypes import FORMATS, STATED
from windtunnel.base.errors import PlanError
from windtunnel.compute.engines.file import choose_engine, curve_of
from windtunnel.compute.engines.seconds import engine_device, priced_as, product_seconds
from windtunnel.formats.jobs.hub_names import find_named
from windtunnel.formats.jobs.huggingface.config import from_config
from windtunnel.formats.jobs.huggingface.quantised import _compile_patterns, _is_named
from windtunnel.serving.drafting import times_of
from windtunnel.serving.server import ServePlan, server_of
from windtunnel.spec import load_gpu, load_model

NAMES = {
    "Qwen/Qwen3-8B": "bf16",
    "Qwen/Qwen3-8B-FP8": "fp8_block",
    "Qwen/Qwen3-32B-AWQ": "int4",
    "Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4": "int4",
    "Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8": "int8",
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": "fp8_block",
    "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8": "fp8_block",
    "Qwen/Qwen3.5-397B-A17B-FP8": "fp8_block",
    "nvidia/Llama-3.1-70B-Instruct-FP8": "fp8",
    "nvidia/Llama-3.3-70B-Instruct-NVFP4": "nvfp4",
    "nvidia/DeepSeek-R1-0528-NVFP4": "nvfp4 (attention bf16)",
    "nvidia/DeepSeek-R1-FP4": "nvfp4 (attention bf16)",
    "nvidia/Kimi-K2-Thinking-NVFP4": "nvfp4 (attention bf16)",
    "deepseek-ai/DeepSeek-R1": "fp8_block",
    "deepseek-ai/DeepSeek-V3.1": "fp8_block",
    "deepseek-ai/DeepSeek-V3.2-Exp": "fp8_block",
    "unsloth/DeepSeek-R1-BF16": "bf16",
    "perplexity-ai/r1-1776": "bf16",
    "cognitivecomputations/DeepSeek-R1-AWQ": "int4",
    "moonshotai/Kimi-K2-Instruct-0905": "fp8_block",
    "moonshotai/Kimi-K2-Thinking": "int4 (attention bf16, MLPs and shared experts bf16)",
    "moonshotai/Kimi-K2.5": "int4 (attention bf16, MLPs and shared experts bf16)",
    "MiniMaxAI/MiniMax-M2.5": "fp8_block",
    "openai/gpt-oss-120b": "mxfp4 (attention bf16)",
    "openai/gpt-oss-20b": "mxfp4 (attention bf16)",
    "lmsys/gpt-oss-20b-bf16": "bf16",
    "unsloth/gpt-oss-20b-unsloth-bnb-4bit": "nf4",
    "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": "fp8",
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16": "int4",
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": "w8a8",
    "RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a16": "int8",
    "RedHatAI/Qwen3-30B-A3B-FP8-block": "fp8_block",
    "neuralmagic/Meta-Llama-3.1-405B-Instruct-FP8": "fp8",
    "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4": "int4",
    "TheBloke/Llama-2-70B-Chat-GPTQ": "int4",
    "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit": "nf4",
    "bartowski/Qwen2.5-32B-Instruct-GGUF": "int4",
    "zai-org/GLM-4.6-FP8": "fp8_block",
    "zai-org/GLM-4.7": "bf16",
    "mistralai/Ministral-3-8B-Instruct-2512": "fp8",
    "mistralai/Ministral-3-8B-Instruct-2512-BF16": "bf16",
    "mistralai/Ministral-3-3B-Base-2512": "bf16",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "bf16",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8": "fp8",
    "Intel/Qwen3-30B-A3B-Instruct-2507-int4-AutoRound": "int4",
    "amd/Llama-3.3-70B-Instruct-MXFP4-Preview": "mxfp4",
    "amd/Llama-3.1-405B-Instruct-FP8-KV": "fp8",
    "deepseek-v3": "fp8_block",
    "gpt-oss-120b": "mxfp4 (attention bf16)",
}
"""Names on the hub -> formats of their repositories' config.json, from memory of them."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_says_its_format(name: str) -> None:
    found = find_named(name)
    assert found is not None
    held = found.model.checkpoint
    assert (held.in_words() if held is not None else "bf16") == NAMES[name]


DENSE = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
LINEAR = ["Linear"]


def _group(weights: dict[str, Any], inputs: dict[str, Any] | None, targets: list[str] = LINEAR) -> dict[str, Any]:
    return {"weights": weights, "input_activations": inputs, "targets": targets}


def _compressed(format: str, ignore: list[str], *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = {f"group_{n}": group for n, group in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head", *ignore], "config_groups": named, **more}


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
OSS_KEPT = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]

CONFIGS: list[tuple[dict[str, Any], str, str]] = [
    ({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "fp8_block", "bf16"),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", "bf16"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, "int4", "bf16"),
    ({"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": False}, "int8", "bf16"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*self_attn.*": {}}}, "int4 (attention bf16)", "bf16"),
    ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, "int4", "bf16"),
    ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4", "bf16"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", "bf16"),
    ({"quant_method": "mxfp4", "modules_to_not_convert": OSS_KEPT}, "mxfp4 (attention bf16)", "bf16"),
    (_compressed("pack-quantized", [], _group(INT4, None)), "int4", "bf16"),
    (_compressed("pack-quantized", ["re:.*self_attn.*"], _group(INT4, None)), "int4 (attention bf16)", "bf16"),
    (_compressed("int-quantized", [], _group(INT8, {"num_bits": 8, "dynamic": True})), "w8a8", "bf16"),
    (_compressed("pack-quantized", [], _group(INT8, None)), "int8", "bf16"),
    (_compressed("float-quantized", [], _group(FP8, {"num_bits": 8, "type": "float"})), "fp8", "bf16"),
    (
        _compressed("float-quantized", [], _group({**FP8, "strategy": "block", "block_structure": [128, 128]}, {"num_bits": 8})),
        "fp8_block", "bf16",
    ),
    (
        _compressed(
            "float-quantized", [], _group(FP8, {"num_bits": 8}), kv_cache_scheme={"num_bits": 8, "type": "float"}
        ), "fp8", "fp8",
    ),
    (_compressed("nvfp4-pack-quantized", [], _group(FP4, {"num_bits": 4, "type": "float"})), "nvfp4", "bf16"),
    (_compressed("pack-quantized", ["re:.*mlp.*"], _group(INT4, None)), "int4", "bf16"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
     "nvfp4", "fp8"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.*.self_attn*"]},
     "fp8 (attention bf16)", "bf16"),
    ({"quant_method": "modelopt", "config_groups": {"group_0": _group(FP4, {"num_bits": 4})}, "quant_algo": "",
      "ignore": ["lm_head"], "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "nvfp4", "fp8"),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}, "exclude": ["lm_head"]}, "fp8", "bf16"),
    ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}, "int4", "bf16"),
    ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "fp8", "bf16"),
    ({"quant_method": "eetq"}, "int8", "bf16"),
]  # fmt: skip
"""`quantization_config`, formats of the weights in words, format of the cache."""


@pytest.mark.parametrize(("table", "words", "kv"), CONFIGS)
def test_a_config_says_its_format(table: dict[str, Any], words: str, kv: str) -> None:
    read = from_config({**DENSE, "quantization_config": table})
    held = read.model.checkpoint
    assert held is not None and held.in_words().replace(" (MLPs and shared experts bf16)", "") == words
    assert (held.kv or "bf16") == kv and "checkpoint" in read.built and "quantization_config" not in read.ignored


def test_layers_of_several_formats_are_said() -> None:
    """ModelOpt's list of layers: experts decide, and the others are named."""
    layers = {
        "model.layers.0.mlp.experts.0.gate_proj": {"quant_algo": "NVFP4"},
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    table = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    read = from_config({**DENSE, "quantization_config": table})
    assert read.model.checkpoint is not None and read.model.checkpoint.weights in ("nvfp4", "bf16")
    assert any("fp8, nvfp4" in line for line in read.assumed)


def test_tens_of_thousands_of_layers_are_read_at_once() -> None:
    """A list of 20,000 layers, as ModelOpt writes of mixtures: paths are looked up, patterns alone are searched."""
    layers = {f"model.layers.{n % 40}.mlp.experts.{n}.gate_proj": {"quant_algo": "NVFP4"} for n in range(20_000)}
    table = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
        "exclude_modules": ["lm_head"],
    }
    begun = time.process_time()
    read = from_config({**DENSE, "num_hidden_layers": 40, "quantization_config": table})
    assert read.model.checkpoint is not None and time.process_time() - begun < 10.0  # 500 s, one pattern after the other


@given(
    st.lists(st.sampled_from(["a", "b", "a.b", "a.*", "*.c", "b?", "x.a", "c"]), max_size=4),
    st.lists(st.sampled_from("abcx"), min_size=1, max_size=4),
)
@examples(200)
def test_law_a_pattern_names_a_run_of_parts(patterns: list[str], parts: list[str]) -> None:
    def one_by_one(pattern: str, name: str) -> bool:
        text = re.escape(pattern.removeprefix("*.")).replace(r"\*", ".*").replace(r"\?", ".")
        return re.search(rf"(?:^|\.)(?:{text})(?:\.|$)", name) is not None

    name = ".".join(parts)
    assert _is_named(_compile_patterns(tuple(patterns)), name) == any(one_by_one(pattern, name) for pattern in patterns)


def test_a_way_that_is_not_known_is_said() -> None:
    read = from_config({**DENSE, "quantization_config": {"quant_method": "holographic", "bits": 4}})
    assert read.model.checkpoint is None and any("holographic" in line for line in read.assumed)


def test_a_part_of_the_layers_is_said() -> None:
    kept = [f"model.layers.{layer}.self_attn.o_proj" for layer in range(6)]
    read = from_config({**DENSE, "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": kept}})
    assert any("attention of all layers in fp8: 17 %" in line for line in read.assumed)


def _weights(form: str, gpu: str = "h100-ib", model: str = "llama3.1-8b") -> float:
    return times_of(server_of(load_model(model), gpu, 1, "vllm", ServePlan(), weights=form)).weights()


@pytest.mark.parametrize("form", STATED)
def test_weights_take_their_bytes(form: str) -> None:
    """Llama 3.1 8B: 6.98e9 weights of linear layers, of which all but embedding and output are packed; both have 525e6."""
    linear = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    expected = linear * FORMATS[form].width + 2.0 * (2 * 128256 * 4096 + 65 * 4096)
    assert _weights(form) == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("form", ["int4", "int8", "mxfp4_wide", "nf4"])
def test_weight_only_products_read_less_and_compute_as_much(form: str) -> None:
    """Few tokens are bound by the weights' bytes, many by 16-bit units: the gain is lost there."""
    gpu = load_gpu("a100-sxm-80gb")
    curves, dev = choose_engine(gpu, "trtllm").linear, engine_device(gpu)
    few, many, n, k = (np.array([float(size)]) for size in (4, 16384, 28672, 8192))

    def seconds(name: str, m: Any) -> float:
        return float(product_seconds(curve_of(curves, name), dev, name, m, n, k)[0])

    assert seconds(form, few) < 0.75 * seconds("bf16", few)
    assert seconds(form, few) > FORMATS[form].width * float(n[0] * k[0]) / gpu.memory_bandwidth / 1.15
    assert 0.9 < seconds(form, many) / seconds("bf16", many) < 1.6


def test_hardware_without_a_format_widens_it() -> None:
    ampere, hopper, blackwell = (load_gpu(name) for name in ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb"))
    assert [priced_as(gpu, "fp8") for gpu in (ampere, hopper, blackwell)] == ["int8", "fp8", "fp8"]
    assert [priced_as(gpu, "nvfp4") for gpu in (ampere, hopper, blackwell)] == ["int4", "int4", "nvfp4"]
    assert [priced_as(gpu, "mxfp4") for gpu in (hopper, blackwell)] == ["mxfp4_wide", "mxfp4"]
    assert priced_as(ampere, "w8a8") == "w8a8" and priced_as(load_gpu("v100-sxm2-32gb"), "w8a8") == "int8"
    for one in FORMATS.values():
        assert all(other in FORMATS for other in (*one.stands_in, *filter(None, (one.widened,))))


def test_8_bit_floats_gain_nothing_on_an_a100_that_is_full() -> None:
    """Marlin's FP8 there reads half of the bytes and multiplies in 16 bits (vLLM's documentation: weight-only on Ampere)."""
    step = {
        form: wt.serve_predict("llama3.1-8b", "a100-ib", tp=1, weights=form, isl=4096, osl=8, concurrency=64, requests=128)
        for form in ("bf16", "fp8", "int8")
    }
    assert step["fp8"].ttft.mean == pytest.approx(step["int8"].ttft.mean, rel=1e-9)
    assert step["fp8"].total_tokens_per_s < 1.1 * step["bf16"].total_tokens_per_s


def test_a_server_takes_what_the_checkpoint_has() -> None:
    answer = wt.serve_predict("openai/gpt-oss-120b", "h100-ib", tp=1, isl=128, osl=64, concurrency=4, requests=8)
    assert answer.server.formats == "mxfp4 (attention bf16)"
    assert any("openai/gpt-oss-120b on the hub" in note for note in answer.notes)
    assert 60e9 < answer.room.weights < 68e9  # the repository has 65 GB
    stated = wt.serve_predict("openai/gpt-oss-120b", "h100-ib", tp=4, weights="bf16", isl=128, osl=64, concurrency=4, requests=8)
    assert stated.server.weights == "bf16" and not any("on the hub" in note for note in stated.notes)


def test_a_config_beside_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**DENSE, "quantization_config": CONFIGS[15][0]}))
    answer = wt.serve_predict(path, "h100-ib", tp=1, isl=128, osl=64, concurrency=4, requests=8)
    assert answer.as_dict()["formats"] == {"weights": "fp8", "attention_weights": "fp8", "dense_weights": "fp8", "kv": "fp8"}


def test_what_does_not_fit_is_told_a_format_that_does() -> None:
    with pytest.raises(PlanError, match="--weights int4"):
        wt.serve_predict("llama3.1-70b", "h100-ib", gpus=1, tp=1, weights="fp8", isl=4096)


def test_a_search_keeps_the_checkpoint() -> None:
    front = wt.serve_search("moonshotai/Kimi-K2-Thinking", "h200-ib", gpus=8, users=[4])
    best = front.choices[0]
    assert best.weights == "int4" and best.served.server.attention_weights == "bf16"
    from windtunnel.serving.front_sheet import command_of

    assert "--weights" not in command_of(best, ["moonshotai/Kimi-K2-Thinking", "--on", "h200-ib"])
