"""Are configurations of hybrids read as the catalogue has the same models?"""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats import from_arguments, from_config
from windtunnel.spec import load_model

NANO: dict[str, Any] = {
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "intermediate_size": 1856,
    "mlp_hidden_act": "relu2",
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "chunk_size": 128,
    "conv_kernel": 4,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "tie_word_embeddings": False,
    "mamba_hidden_act": "silu",
    "use_bias": False,
}
KIMI: dict[str, Any] = {
    "model_type": "kimi_linear",
    "hidden_size": 2304,
    "num_hidden_layers": 27,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 9216,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "moe_intermediate_size": 1024,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "moe_router_activation_func": "sigmoid",
    "vocab_size": 163840,
    "max_position_embeddings": 1048576,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "num_expert_group": 1,
    "topk_group": 1,
    "linear_attn_config": {
        "kda_layers": [i for i in range(1, 27) if i % 4],
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}
CONFIGS: dict[str, dict[str, Any]] = {
    "nemotron-3-nano-30b-a3b": NANO,
    "nemotron-h-8b": {
        "model_type": "nemotron_h",
        "hidden_size": 4096,
        "num_hidden_layers": 52,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "attention_head_dim": 128,
        "intermediate_size": 21504,
        "mlp_hidden_act": "relu2",
        "vocab_size": 131072,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "mamba_num_heads": 128,
        "mamba_head_dim": 64,
        "n_groups": 8,
        "ssm_state_size": 128,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "intermediate_size": 5120,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "vocab_size": 151936,
        "max_position_embeddings": 262144,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    "kimi-linear-48b-a3b": KIMI,
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_gives_the_model_of_the_catalogue(name: str) -> None:
    made, known = from_config(CONFIGS[name]).model, load_model(name)
    differing = {field for field in type(known).model_fields if getattr(made, field) != getattr(known, field)}
    assert differing <= {"name", "source", "qkv_bias", "dropout", "kv_heads", "layer_pattern", "numerics"}
    assert (made.kinds, made.groups if not made.latent else 0) == (known.kinds, known.groups if not known.latent else 0)


def test_types_in_a_list_are_the_same_pattern() -> None:
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    types = [words[letter] for letter in NANO["hybrid_override_pattern"]]
    listed = {key: value for key, value in NANO.items() if key != "hybrid_override_pattern"} | {"layers_block_type": types}
    assert from_config(listed).model.kinds == from_config(NANO).model.kinds


def test_hybrids_with_an_mlp_in_every_layer() -> None:
    bamba = {
        "model_type": "bamba",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "attn_layer_indices": [9, 18, 27],
        "mamba_n_heads": 128,
        "mamba_d_head": 64,
        "mamba_n_groups": 1,
        "mamba_d_state": 128,
        "vocab_size": 128256,
        "hidden_act": "silu",
    }
    model = from_config(bamba).model
    assert [i for i, kind in enumerate(model.kinds) if kind.mixer == "self_attention"] == [9, 18, 27]
    granite = bamba | {
        "model_type": "granitemoehybrid",
        "layer_types": ["mamba"] * 5 + ["attention"],
        "num_hidden_layers": 6,
        "num_local_experts": 64,
        "num_experts_per_tok": 6,
        "intermediate_size": 512,
        "shared_intermediate_size": 1024,
    }
    model = from_config(granite).model
    assert (model.mixer_pattern, model.experts, model.expert_ffn, model.shared_ffn) == ("M5A", 64, 512, 1024)
    pure = {"model_type": "mamba2", "num_hidden_layers": 4, "hidden_size": 2560, "num_heads": 80, "vocab_size": 50288}
    assert {kind.mixer for kind in from_config(pure).model.kinds} == {"mamba2"}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (NANO | {"hybrid_override_pattern": "MXM"}, "hybrid_override_pattern"),
        (NANO | {"num_hidden_layers": 51}, "num_hidden_layers"),
        (NANO | {"mamba_num_heads": 0}, "mamba_num_heads"),
        (NANO | {"layers_block_type": ["mamba", "x"]}, "layers_block_type"),
        (KIMI | {"linear_attn_config": None}, "linear_attn_config"),
        (CONFIGS["qwen3-next-80b-a3b"] | {"layer_types": ["x"]}, "layer_types"),
        (KIMI | {"linear_attn_config": KIMI["linear_attn_config"] | {"full_attn_layers": [99]}}, "full_attn_layers"),
    ],
)
def test_wrong_values_name_their_key(config: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        from_config(config)


FLAGS = (
    "--num-layers 5 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --micro-batch-size 1 --global-batch-size 8 "
    "--vocab-size 1000 --squared-relu --normalization RMSNorm --disable-bias-linear --position-embedding-type none "
    "--is-hybrid-model --mamba-state-dim 64 "
)


def test_flags_of_megatron_give_the_same_pattern() -> None:
    made = from_arguments(FLAGS + "--hybrid-override-pattern M-M*-")
    model = made.model
    assert model is not None and model.layer_pattern == "M-M*-"
    assert (model.ssm_heads, model.ssm_head_dim, model.ssm_state, model.ssm_groups) == (16, 64, 64, 8)
    assert any("mamba-num-heads" in line for line in made.assumed)


def test_bars_of_a_pattern_cut_the_pipeline() -> None:
    plan = from_arguments(FLAGS + "--hybrid-override-pattern M-|M*- --pipeline-model-parallel-size 2").plan
    assert plan is not None and (plan.stages, plan.vpp) == ((2, 3), 1)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--hybrid-override-pattern M-M", "num-layers"),
        ("--hybrid-override-pattern M-|M*- --pipeline-model-parallel-size 5", "hybrid-layer-pattern"),
        ("--hybrid-override-pattern M-||M*-", "hybrid-layer-pattern"),
    ],
)
def test_wrong_patterns_say_so(flags: str, named: str) -> None:
    with pytest.raises(SpecError, match=named):
        from_arguments(FLAGS + flags)
