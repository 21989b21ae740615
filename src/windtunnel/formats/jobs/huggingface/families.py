"""How each Hugging Face `model_type` spells its dimensions, and what its architecture fixes.

Read from the configuration classes of transformers (`configuration_<type>.py`): names of the keys, defaults of the keys that a
config.json may leave out, and what is in code and in no key (norm, position embedding, gating).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Rewrite = Callable[[Mapping[str, Any]], tuple[dict[str, Any], set[str]]]
"""(configuration in the type's own keys) -> (in the common keys, the keys of its own that were read)."""

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_tanh": "gelu",
    "gegelu": "gelu",
    "quick_gelu": "gelu",
    "swiglu": "silu",
    "relu": "relu",
    "relu2": "squared_relu",
    "squared_relu": "squared_relu",
}


@dataclass(frozen=True)
class Family:
    """One `model_type`.

    `keys` maps our field to the source's spellings, first one present wins; `fixed` are fields that the architecture decides;
    `defaults` stand for keys that are left out; `gated` says that the MLP has a gate projection; `rope` that position comes from
    rotary embedding; `notes` are told to the user as assumptions. `period` says that every so many layers see all tokens where
    there is a window; `window_off` that the window is off unless `use_sliding_window` is true; `rewrite` turns keys of a type's own
    make into the common ones.
    """

    fixed: Mapping[str, Any]
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gated: bool = True
    notes: tuple[str, ...] = ()
    period: int | None = None
    window_off: bool = False
    rewrite: Rewrite | None = None


COMMON_KEYS: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner"),
    "vocab": ("vocab_size",),
    "max_seq": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    "activation": ("hidden_activation", "hidden_act", "activation_function"),
    "tied_embeddings": ("tie_word_embeddings",),
}

LLAMA: dict[str, Any] = {"norm": "rmsnorm", "position": "rope"}
_GPT: dict[str, Any] = {"norm": "layernorm", "position": "learned"}

EXPERTS = {
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "expert_ffn": ("moe_intermediate_size",),
    "top_k": ("num_experts_per_tok", "experts_per_token"),
}
LATENT = {
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_nope_dim": ("qk_nope_head_dim",),
    "qk_rope_dim": ("qk_rope_head_dim",),
    "v_dim": ("v_head_dim",),
    "router_groups": ("n_group",),
    "router_top_groups": ("topk_group",),
    "mtp_layers": ("num_nextn_predict_layers",),
}
_WINDOW = {"window": ("sliding_window",)}
UNTIED = {"activation": "silu", "tied_embeddings": False}
_BIAS = {"qkv_bias": ("attention_bias",)}
_DEEPSEEK = Family(LLAMA | {"linear_bias": False, "qkv_bias": False}, EXPERTS | LATENT, UNTIED)

FAMILIES: dict[str, Family] = {
    "llama": Family(
        LLAMA,
        {"qkv_bias": ("attention_bias",), "linear_bias": ("mlp_bias",)},
        {"activation": "silu", "tied_embeddings": False, "qkv_bias": False, "linear_bias": False},
    ),
    "mistral": Family(
        LLAMA | {"linear_bias": False}, {"window": ("sliding_window",)}, {"activation": "silu", "tied_embeddings": False}
    ),
    "qwen2": Family(
        LLAMA | {"linear_bias": False, "qkv_bias": True},
        {"window": ("sliding_window",)},
        {"activation": "silu", "tied_embeddings": False},
        window_off=True,
    ),
    "qwen3": Family(
        LLAMA | {"linear_bias": False, "qk_norm": True},
        {"qkv_bias": ("attention_bias",), "window": ("sliding_window",)},
        {"activation": "silu", "tied_embeddings": False, "qkv_bias": False, "head_dim": 128},
        window_off=True,
    ),
    "phi3": Family(
        LLAMA | {"linear_bias": False}, {"window": ("sliding_window",)}, {"activation": "silu", "tied_embeddings": False}
    ),
    "gemma": Family(
        LLAMA | {"linear_bias": False},
        {"qkv_bias": ("attention_bias",)},
        {"activation": "gelu_pytorch_tanh", "tied_embeddings": True, "head_dim": 256, "qkv_bias": False},
    ),
    "nemotron": Family(
        {"norm": "layernorm", "position": "rope"},
        {"qkv_bias": ("attention_bias",), "linear_bias": ("mlp_bias",)},
        {"activation": "relu2", "tied_embeddings": False, "qkv_bias": False, "linear_bias": False},
        gated=False,
    ),
    "starcoder2": Family(
        {"norm": "layernorm", "position": "rope"},
        {"linear_bias": ("use_bias",), "window": ("sliding_window",)},
        {"activation": "gelu_pytorch_tanh", "tied_embeddings": True, "linear_bias": True},
        gated=False,
    ),
    "gpt2": Family(_GPT | {"linear_bias": True}, {}, {"activation": "gelu_new", "tied_embeddings": True}, gated=False),
    "gpt_neox": Family(
        {"norm": "layernorm", "position": "rope", "linear_bias": True},
        {"qkv_bias": ("attention_bias",), "parallel_block": ("use_parallel_residual",)},
        {"activation": "gelu", "tied_embeddings": False, "qkv_bias": True, "parallel_block": True},
        gated=False,
        notes=("the two norms of a parallel block count as one",),
    ),
    "opt": Family(
        _GPT,
        {"activation": ("activation_function",), "linear_bias": ("enable_bias",)},
        {"activation": "relu", "tied_embeddings": True, "linear_bias": True},
        gated=False,
    ),
    "bloom": Family(
        {"norm": "layernorm", "position": "alibi", "linear_bias": True, "embedding_norm": True},
        {},
        {"activation": "gelu", "tied_embeddings": True},
        gated=False,
    ),
    "mixtral": Family(LLAMA | {"linear_bias": False}, EXPERTS | _WINDOW, UNTIED | {"experts": 8, "top_k": 2}),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "qwen3_moe": Family(
        LLAMA | {"linear_bias": False, "qk_norm": True},
        EXPERTS | _WINDOW | _BIAS,
        UNTIED | {"qkv_bias": False, "top_k": 8},
        window_off=True,
    ),
    "qwen2_moe": Family(
        LLAMA | {"linear_bias": False, "qkv_bias": True},
        EXPERTS | _WINDOW | {"shared_ffn": ("shared_expert_intermediate_size",)},
        UNTIED | {"top_k": 4},
        window_off=True,
    ),
    "glm4_moe": Family(
        LLAMA | {"linear_bias": False, "router": "sigmoid", "balance": "bias"},
        EXPERTS
        | _BIAS
        | {
            "qk_norm": ("use_qk_norm",),
            "router_groups": ("n_group",),
            "router_top_groups": ("topk_group",),
            "mtp_layers": ("num_nextn_predict_layers",),
        },
        UNTIED | {"qkv_bias": False, "top_k": 8},
    ),
    "gpt_oss": Family(
        LLAMA | {"linear_bias": True, "attention_sinks": True, "clamped_activation": True},
        EXPERTS | _WINDOW | _BIAS,
        UNTIED | {"qkv_bias": True, "head_dim": 64, "top_k": 4},
        period=2,
    ),
    "llama4_text": Family(
        LLAMA | {"linear_bias": False, "router": "sigmoid"},
        EXPERTS
        | _BIAS
        | {"window": ("attention_chunk_size",), "ffn": ("intermediate_size_mlp",), "expert_ffn": ("intermediate_size",)},
        UNTIED | {"qkv_bias": False, "head_dim": 128, "top_k": 1},
        notes=("attention in chunks counts as a window of the chunk's length",),
        period=4,
    ),
    "gemma3_text": Family(
        LLAMA | {"linear_bias": False, "qk_norm": True, "post_norms": True},
        _WINDOW | _BIAS,
        {
            "activation": "gelu_pytorch_tanh",
            "tied_embeddings": True,
            "head_dim": 256,
            "qkv_bias": False,
            "heads": 8,
            "kv_heads": 4,
            "vocab": 262208,
            "window": 4096,
            "max_seq": 131072,
        },
        period=6,
    ),
    "mpt": Family({"norm": "layernorm"}, {}, {"activation": "gelu", "tied_embeddings": True}, gated=False),
}

EXPERT_KEYS = (
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
    "moe_num_experts",
    "num_routed_experts",
    "kv_lora_rank",
    "moe_intermediate_size",
    "ssm_cfg",
)
"""Keys of experts, latent attention and scans, which a dense type does not have."""
