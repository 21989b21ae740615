"""Do the published configurations give the published numbers of parameters? Keys and counts as on the models' hub pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.formats import from_config
from windtunnel.workload import parameter_count

_NAMES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")


def _config(kind: str, sizes: tuple[int, ...], **more: Any) -> dict[str, Any]:
    """`sizes`: layers, hidden, heads, key/value heads, MLP width, vocabulary."""
    return {"model_type": kind, **dict(zip(_NAMES, sizes, strict=True)), **more}


_TIED = {"tie_word_embeddings": True}
PUBLISHED: dict[str, tuple[float, dict[str, Any]]] = {
    "gemma-2-2b": (2.614e9, _config("gemma2", (26, 2304, 8, 4, 9216, 256000), head_dim=256)),
    "gemma-2-9b": (9.242e9, _config("gemma2", (42, 3584, 16, 8, 14336, 256000), head_dim=256)),
    "gemma-2-27b": (27.227e9, _config("gemma2", (46, 4608, 32, 16, 36864, 256000), head_dim=128)),
    "Phi-3.5-MoE": (41.873e9, _config("phimoe", (32, 4096, 32, 8, 6400, 32064), num_local_experts=16, attention_bias=True)),
    "OLMoE-1B-7B": (6.919e9, _config("olmoe", (16, 2048, 16, 16, 1024, 50304), num_experts=64, num_experts_per_tok=8)),
    "OLMo-1B": (1.177e9, _config("olmo", (16, 2048, 16, 16, 8192, 50304), **_TIED)),
    "OLMo-7B": (6.888e9, _config("olmo", (32, 4096, 32, 32, 11008, 50304))),
    "OLMo-2-1124-7B": (7.299e9, _config("olmo2", (32, 4096, 32, 32, 11008, 100352))),
    "OLMo-2-1124-13B": (13.716e9, _config("olmo2", (40, 5120, 40, 40, 13824, 100352))),
    "Olmo-3-7B": (7.298e9, _config("olmo3", (32, 4096, 32, 32, 11008, 100278), sliding_window=4096)),
    "falcon-7b": (
        6.922e9,
        {"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71, "vocab_size": 65024}
        | {"multi_query": True, "parallel_attn": True, "bias": False},
    ),
    "falcon-40b": (
        41.303e9,
        {"model_type": "falcon", "num_hidden_layers": 60, "hidden_size": 8192, "num_attention_heads": 128, "vocab_size": 65024}
        | {"num_kv_heads": 8, "new_decoder_architecture": True, "bias": False},
    ),
    "glm-4-9b-hf": (9.400e9, _config("glm", (40, 4096, 32, 2, 13696, 151552), attention_bias=True)),
    "GLM-4-32B-0414": (32.566e9, _config("glm4", (61, 6144, 48, 2, 23040, 151552), attention_bias=False)),
    "phi-2": (2.780e9, _config("phi", (32, 2560, 32, 32, 10240, 51200))),
    "phi-1_5": (1.418e9, _config("phi", (24, 2048, 32, 32, 8192, 51200))),
    "Phi-3-small-8k": (
        7.392e9,
        {"model_type": "phi3small", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
        | {"num_key_value_heads": 8, "ff_intermediate_size": 14336, "vocab_size": 100352},
    ),
    "Phi-3-mini-4k": (3.821e9, _config("phi3", (32, 3072, 32, 32, 8192, 32064))),
    "c4ai-command-r-v01": (34.981e9, _config("cohere", (40, 8192, 64, 64, 22528, 256000))),
    "c4ai-command-r7b": (8.028e9, _config("cohere2", (32, 4096, 32, 8, 14336, 256000), sliding_window=4096)),
    "stablelm-2-1_6b": (1.645e9, _config("stablelm", (24, 2048, 32, 32, 5632, 100352), use_qkv_bias=True)),
    "stablelm-3b-4e1t": (2.795e9, _config("stablelm", (32, 2560, 32, 32, 6912, 50304))),
    "gpt-j-6b": (
        6.051e9,
        {"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "n_inner": None, "vocab_size": 50400},
    ),
    "starcoder": (
        15.518e9,
        {"model_type": "gpt_bigcode", "n_layer": 40, "n_embd": 6144, "n_head": 48, "n_inner": 24576, "n_positions": 8192}
        | {"multi_query": True, "vocab_size": 49152},
    ),
    "gpt-neo-1.3B": (
        1.316e9,
        {"model_type": "gpt_neo", "num_layers": 24, "hidden_size": 2048, "num_heads": 16, "vocab_size": 50257}
        | {"max_position_embeddings": 2048, "attention_types": [[["global", "local"], 12]]},
    ),
    "codegen-2B": (
        2.779e9,
        {"model_type": "codegen", "n_layer": 32, "n_embd": 2560, "n_head": 32, "vocab_size": 51200},
    ),
    "granite-3.0-8b": (8.171e9, _config("granite", (40, 4096, 32, 8, 12800, 49155), **_TIED)),
    "granite-3.0-3b-a800m": (
        3.30e9,
        _config("granitemoe", (32, 1536, 24, 8, 512, 49155), num_local_experts=40, num_experts_per_tok=8, **_TIED),
    ),
    "EXAONE-3.0-7.8B": (
        7.818e9,
        {"model_type": "exaone", "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
        | {"intermediate_size": 14336, "activation_function": "silu", "vocab_size": 102400},
    ),
    "EXAONE-4.0-32B": (
        32.003e9,
        _config("exaone4", (64, 5120, 40, 8, 27392, 102400), sliding_window=4096, sliding_window_pattern="LLLG"),
    ),
    "SmolLM3-3B": (3.075e9, _config("smollm3", (36, 2048, 16, 4, 11008, 128256))),
    "Hunyuan-7B": (7.505e9, _config("hunyuan_v1_dense", (32, 4096, 32, 8, 14336, 128167), head_dim=128, **_TIED)),
    "Hunyuan-A13B": (
        80.393e9,
        _config("hunyuan_v1_moe", (32, 4096, 32, 8, 3072, 128167), num_experts=64, moe_topk=[8] * 32, **_TIED)
        | {"moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32, "use_mixed_mlp_moe": True, "head_dim": 128},
    ),
    "ERNIE-4.5-0.3B": (0.361e9, _config("ernie4_5", (18, 1024, 16, 2, 3072, 103424))),
    "ERNIE-4.5-21B-A3B": (
        21.826e9,
        _config("ernie4_5_moe", (28, 2560, 20, 4, 12288, 103424), moe_num_experts=64, moe_k=6, moe_intermediate_size=1536)
        | {"moe_num_shared_experts": 2, "moe_layer_start_index": 1},
    ),
    "internlm2-7b": (7.738e9, _config("internlm2", (32, 4096, 32, 8, 14336, 92544), bias=False)),
    "internlm3-8b": (8.804e9, _config("internlm3", (48, 4096, 32, 2, 10240, 128512), head_dim=128)),
    "Baichuan2-7B": (7.506e9, _config("baichuan", (32, 4096, 32, 32, 11008, 125696))),
    "Baichuan2-13B": (13.897e9, _config("baichuan", (40, 5120, 40, 40, 13696, 125696), model_max_length=4096)),
    "chatglm3-6b": (
        6.244e9,
        {"model_type": "chatglm", "num_layers": 28, "hidden_size": 4096, "num_attention_heads": 32, "kv_channels": 128}
        | {"ffn_hidden_size": 13696, "multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 65024}
        | {"add_qkv_bias": True, "seq_length": 8192},
    ),
    "dbrx-base": (
        131.597e9,
        {"model_type": "dbrx", "n_layers": 40, "d_model": 6144, "n_heads": 48, "vocab_size": 100352, "max_seq_len": 32768}
        | {"attn_config": {"kv_n_heads": 8}, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}},
    ),
    "Jamba-v0.1": (51.570e9, _config("jamba", (32, 4096, 32, 8, 14336, 65536), num_experts=16, num_experts_per_tok=2)),
    "snowflake-arctic": (
        478.6e9,
        _config("arctic", (35, 7168, 56, 8, 4864, 32000), num_local_experts=128, num_experts_per_tok=2, moe_layer_frequency=1),
    ),
    "deepseek-moe-16b": (
        16.376e9,
        _config("deepseek", (28, 2048, 16, 16, 10944, 102400), moe_intermediate_size=1408, n_routed_experts=64)
        | {"n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1},
    ),
    "dots.llm1": (
        142.774e9,
        _config("dots1", (62, 4096, 32, 32, 10944, 152064), head_dim=128, moe_intermediate_size=1408, n_routed_experts=128)
        | {"n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    ),
    "Ling-lite": (
        16.802e9,
        _config("bailing_moe", (28, 2048, 16, 4, 5632, 126464), moe_intermediate_size=1408, num_experts=64)
        | {"num_shared_experts": 2, "num_experts_per_tok": 6},
    ),
    "Seed-OSS-36B": (36.151e9, _config("seed_oss", (64, 5120, 80, 8, 27648, 155136), attention_bias=True, head_dim=128)),
    "MiMo-7B": (7.616e9, _config("mimo", (36, 4096, 32, 8, 11008, 151680), num_nextn_predict_layers=1)),
    "Qwen-7B": (7.721e9, _config("qwen", (32, 4096, 32, 32, 22016, 151936), kv_channels=128, seq_length=8192, no_bias=True)),
    "Qwen2-VL-7B text": (7.616e9, _config("qwen2_vl_text", (28, 3584, 28, 4, 18944, 152064))),
    "MiniMax-M2": (
        228.690e9,
        _config("minimax_m2", (62, 3072, 48, 8, 1536, 200064), head_dim=128, num_local_experts=256, num_experts_per_tok=8),
    ),
    "MiniMax-Text-01": (
        456.090e9,
        _config("minimax_text_01", (80, 6144, 64, 8, 9216, 200064), head_dim=128, num_local_experts=32, num_experts_per_tok=2)
        | {"attn_type_list": ([0] * 7 + [1]) * 10},
    ),
    "GLM-4.5-Air": (
        106.852e9,
        _config("glm4_moe", (46, 4096, 96, 8, 10944, 151552), head_dim=128, attention_bias=True, moe_intermediate_size=1408)
        | {"n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1},
    ),
    "LFM2-1.2B": (
        1.170e9,
        {"model_type": "lfm2", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8}
        | {"block_ff_dim": 12288, "vocab_size": 65536, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3},
    ),
    "LongCat-Flash": (  # arXiv 2509.01322: 560 billion
        560.6e9,
        {"model_type": "longcat_flash", "num_layers": 28, "hidden_size": 6144, "num_attention_heads": 64, "vocab_size": 131072}
        | {"ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256}
        | {"moe_topk": 12, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    ),
    "persimmon-8b": (
        9.397e9,
        {"model_type": "persimmon", "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 64}
        | {"intermediate_size": 16384, "vocab_size": 262144},
    ),
}

DEFAULTS: dict[str, Any] = json.loads((Path(__file__).parent / "huggingface_parameters.json").read_text(encoding="utf-8"))
"""Types of transformers 5.23.0: the sizes that an empty configuration has, and the parameters of the class that it makes."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_number_of_parameters(name: str) -> None:
    published, config = PUBLISHED[name]
    assert parameter_count(from_config(config).model) == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize("kind", DEFAULTS)
def test_the_parameters_of_the_class(kind: str) -> None:
    row = DEFAULTS[kind]
    assert parameter_count(from_config(row["config"]).model) == pytest.approx(row["parameters"], rel=0.005)
