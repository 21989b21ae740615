"""Are configurations of mixtures read as the catalogue has the same models?"""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats import from_config
from windtunnel.formats.jobs.huggingface.hybrids import pattern
from windtunnel.spec import load_model

DEEPSEEK: dict[str, Any] = {
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "moe_layer_freq": 1,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "mixtral-8x7b": {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 32000,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "deepseek-v3": DEEPSEEK
    | {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "num_nextn_predict_layers": 1,
        "vocab_size": 129280,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "max_position_embeddings": 163840,
    },
    "deepseek-v2-lite": DEEPSEEK
    | {
        "model_type": "deepseek_v2",
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": None,
        "vocab_size": 102400,
        "scoring_func": "softmax",
        "topk_method": "greedy",
        "max_position_embeddings": 163840,
    },
    "qwen3-235b-a22b": {
        "model_type": "qwen3_moe",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "moe_intermediate_size": 1536,
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "vocab_size": 151936,
        "sliding_window": None,
        "use_sliding_window": False,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": False,
    },
    "gpt-oss-120b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "vocab_size": 201088,
        "max_position_embeddings": 131072,
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    "llama4-maverick": {
        "model_type": "llama4_text",
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 8192,
        "vocab_size": 202048,
        "max_position_embeddings": 1048576,
        "tie_word_embeddings": False,
    },
    "gemma3-27b": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "vocab_size": 262208,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
    },
}
_GEMMA4 = {"model_type": "gemma4_text", "num_hidden_layers": 30, "hidden_size": 2816, "intermediate_size": 2112}
_GEMMA4 |= {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 262144, "sliding_window": 1024}
_GEMMA4 |= {"max_position_embeddings": 262144, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True}
_GEMMA4 |= {"enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704}
_WIDE = {"head_dim": 512, "num_key_value_heads": 2}
CONFIGS["gemma4-26b-a4b"] = _GEMMA4 | {"global_head_dim": 512, "num_global_key_value_heads": 2}
_SMALL4 = {"model_type": "gemma4_text", "num_attention_heads": 8, "head_dim": 256, "vocab_size": 262144, "sliding_window": 512}
_SMALL4 |= {"attention_k_eq_v": False, "enable_moe_block": False, "hidden_size_per_layer_input": 256, "tie_word_embeddings": True}
CONFIGS["gemma4-e2b"] = _SMALL4 | {"num_hidden_layers": 35, "hidden_size": 1536, "intermediate_size": 6144}
CONFIGS["gemma4-e2b"] |= {"num_key_value_heads": 1, "num_kv_shared_layers": 20, "use_double_wide_mlp": True}
CONFIGS["gemma4-e2b"] |= {"layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7}
CONFIGS["gemma4-e4b"] = _SMALL4 | {"num_hidden_layers": 42, "hidden_size": 2560, "intermediate_size": 10240}
CONFIGS["gemma4-e4b"] |= {"num_key_value_heads": 2, "num_kv_shared_layers": 18, "use_double_wide_mlp": False}
_LFM2 = {"model_type": "lfm2", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8}
_LFM2 |= {"vocab_size": 65536, "max_position_embeddings": 128000, "conv_L_cache": 3, "conv_bias": False}
CONFIGS["lfm2-1.2b"] = _LFM2 | {"block_ff_dim": 12288, "full_attn_idxs": [2, 5, 8, 10, 12, 14]}
CONFIGS["lfm2-8b-a1b"] = _LFM2 | {"model_type": "lfm2_moe", "num_hidden_layers": 24, "intermediate_size": 7168, "num_experts": 32}
CONFIGS["lfm2-8b-a1b"] |= {"moe_intermediate_size": 1792, "num_experts_per_tok": 4, "num_dense_layers": 2}
CONFIGS["lfm2-8b-a1b"] |= {"layer_types": ["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv" for i in range(24)]}
SAID_OTHERWISE = ("name", "source", "checkpoint", "qkv_bias", "kv_heads", "expert_ffn", "dropout", "layer_pattern")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_gives_the_model_of_the_catalogue(name: str) -> None:
    made, known = from_config(CONFIGS[name]).model, load_model(name)
    differing = {field for field in type(known).model_fields if getattr(made, field) != getattr(known, field)}
    assert differing <= {*SAID_OTHERWISE, "numerics"}  # which these files leave out
    assert (made.groups, made.expert_width, made.attention_bias, made.kinds) == (
        known.heads if known.latent else known.groups,
        known.expert_width,
        known.attention_bias,
        known.kinds,
    )


def test_heads_of_full_attention_are_read_from_later_files_too() -> None:
    later = from_config(_GEMMA4 | {"per_layer_config": {f"{layer:02}": _WIDE for layer in range(5, 30, 6)}}).model
    assert later == from_config(CONFIGS["gemma4-26b-a4b"]).model


def test_a_table_of_other_words_for_each_layer_is_refused() -> None:
    with pytest.raises(SpecError, match="vocab_size_per_layer_input.*262144"):
        from_config(CONFIGS["gemma4-e4b"] | {"vocab_size_per_layer_input": 128})


@pytest.mark.parametrize(("letters", "short"), [("LGLGLG", "LG"), ("LLLLLGLLLLLGLL", "L5GL5GL2"), ("DDDEE", "D3E2"), ("EEEE", "E"),
                                                ("LLLLLGLLLLLG", "L5G"), ("LLLGLLLGLL", "L3G")])  # fmt: skip
def test_patterns_are_short_and_give_the_letters_again(letters: str, short: str) -> None:
    one, letter = ("window_pattern", "L") if letters[0] in "LG" else ("layer_pattern", "E")
    changed = {"layers": len(letters), one: pattern(list(letters)), "window": 8, "experts": 4}
    kinds = load_model("qwen3-0.6b").model_copy(update=changed).kinds
    assert [kind.local if letter == "L" else kind.experts for kind in kinds] == [found == letter for found in letters]
    assert len(pattern(list(letters))) <= len(short)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_experts_per_tok": 0}, "num_experts_per_tok"),
        ({"n_shared_experts": -1}, "n_shared_experts"),
        ({"first_k_dense_replace": "3"}, "first_k_dense_replace"),
        ({"kv_lora_rank": 0}, "kv_lora_rank"),
        ({"mlp_only_layers": 3}, "mlp_only_layers"),
        ({"num_nextn_predict_layers": -2}, "mtp"),
    ],
)
def test_wrong_values_name_their_key(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        from_config(CONFIGS["deepseek-v3"] | change)
