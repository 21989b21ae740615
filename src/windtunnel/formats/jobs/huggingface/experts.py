"""Hugging Face types of mixtures of experts, beside those in `families`; sources as in `dense` and `rewrites`."""

from __future__ import annotations

from typing import Any

from windtunnel.formats.jobs.huggingface.families import EXPERTS, LATENT, LLAMA, UNTIED, Family
from windtunnel.formats.jobs.huggingface.rewrites import arctic, bailing, dbrx, ernie_moe, exaone, gemma4, hunyuan_moe, longcat

_RMS: dict[str, Any] = LLAMA | {"linear_bias": False}
_BIAS = {"qkv_bias": ("attention_bias",)}
_WINDOW = {"window": ("sliding_window",)}
_SHARED = {"shared_ffn": ("shared_intermediate_size",)}
_ALL_EXPERTS = EXPERTS | {"expert_ffn": ("intermediate_size",)}
"""Of types without a width for dense layers: `intermediate_size` is that of an expert."""
_GROUPS = {"router_groups": ("n_group",), "router_top_groups": ("topk_group",), "mtp_layers": ("num_nextn_predict_layers",)}
_SIGMOID = {"router": "sigmoid", "balance": "bias"}
_UNBIASED = UNTIED | {"qkv_bias": False}
_SPARSE = ("attention over all keys: the indexer that picks some of them is not modelled",)
_LATENT = Family(_RMS | {"qkv_bias": False} | _SIGMOID, EXPERTS | LATENT, UNTIED)
_GEMMA4 = Family(
    _RMS | {"qk_norm": True, "post_norms": True},
    EXPERTS
    | _WINDOW
    | _BIAS
    | _SHARED
    | {
        "global_head_dim": ("global_head_dim",),
        "global_kv_heads": ("num_global_key_value_heads",),
        "global_shared_kv": ("attention_k_eq_v",),
    },
    {
        "activation": "gelu_pytorch_tanh",
        "tied_embeddings": True,
        "qkv_bias": False,
        "heads": 8,
        "kv_heads": 4,
        "head_dim": 256,
        "vocab": 262144,
        "window": 512,
        "max_seq": 131072,
    },
    period=6,
    rewrite=gemma4,
)

MIXTURES: dict[str, Family] = {
    "afmoe": Family(
        _RMS | _SIGMOID | {"qk_norm": True, "attention_gate": True, "post_norms": True, "qkv_bias": False},
        EXPERTS | _WINDOW | _SHARED,
        UNTIED | {"head_dim": 128, "window": 1024},
        period=4,
        rewrite=bailing,
    ),
    "arctic": Family(_RMS, EXPERTS | _SHARED, UNTIED | {"top_k": 2}, rewrite=arctic),
    "bailing_moe": Family(_RMS, EXPERTS | _SHARED | {"qkv_bias": ("use_qkv_bias",)}, _UNBIASED, rewrite=bailing),
    "bailing_moe_v2": Family(
        _RMS | _SIGMOID,
        EXPERTS | _SHARED | _GROUPS | {"qkv_bias": ("use_qkv_bias",), "qk_norm": ("use_qk_norm",)},
        _UNBIASED | {"qk_norm": True},
        rewrite=bailing,
    ),
    "dbrx": Family(
        {"norm": "layernorm", "position": "rope", "linear_bias": False},
        EXPERTS,
        {"activation": "silu", "tied_embeddings": False},
        rewrite=dbrx,
    ),
    "deepseek": Family(_RMS, EXPERTS | _BIAS, _UNBIASED),
    "deepseek_v32": Family(_LATENT.fixed, _LATENT.keys, UNTIED, notes=_SPARSE),
    "dots1": Family(_RMS | _SIGMOID | {"qk_norm": True}, EXPERTS | _BIAS | _GROUPS | _WINDOW, _UNBIASED, window_off=True),
    "ernie4_5_moe": Family(
        LLAMA,
        EXPERTS | _SHARED | {"linear_bias": ("use_bias",)},
        {"activation": "silu", "tied_embeddings": True, "linear_bias": False},
        rewrite=ernie_moe,
    ),
    "exaone_moe": Family(
        _RMS | _SIGMOID | {"qk_norm": True, "qkv_bias": False},
        EXPERTS | _WINDOW | _GROUPS,
        UNTIED,
        period=4,
        rewrite=exaone,
    ),
    "flex_olmo": Family(_RMS | {"qk_norm": True}, _ALL_EXPERTS | _BIAS, _UNBIASED | {"top_k": 5}),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "glm4_moe_lite": _LATENT,
    "glm_moe_dsa": Family(_LATENT.fixed, _LATENT.keys, UNTIED, notes=_SPARSE),
    "granitemoe": Family(_RMS, _ALL_EXPERTS | _BIAS, _UNBIASED | {"experts": 8, "top_k": 2}),
    "granitemoeshared": Family(_RMS, _ALL_EXPERTS | _BIAS | _SHARED, _UNBIASED | {"experts": 8, "top_k": 2}),
    "hunyuan": Family(
        _RMS,
        EXPERTS | _BIAS | _SHARED | {"qk_norm": ("use_qk_norm",)},
        {"activation": "silu", "tied_embeddings": True, "qkv_bias": False, "qk_norm": False},
        rewrite=hunyuan_moe,
    ),
    "hunyuan_v1_moe": Family(
        _RMS,
        EXPERTS | _BIAS | _SHARED | {"qk_norm": ("use_qk_norm",)},
        _UNBIASED | {"qk_norm": True},
        rewrite=hunyuan_moe,
    ),
    "hy_v3": Family(_RMS | _SIGMOID | {"qk_norm": True}, EXPERTS | _BIAS | _SHARED, _UNBIASED, rewrite=bailing),
    "longcat_flash": Family(
        _RMS | {"qkv_bias": False, "balance": "bias"},
        EXPERTS | LATENT | _SHARED,
        UNTIED | {"q_lora_rank": 1536, "kv_lora_rank": 512},
        notes=(
            "each layer counts as two, the first with experts, which do not overlap with the second's attention",
            "experts that do nothing take an even share of the tokens",
        ),
        rewrite=longcat,
    ),
    "minimax_m2": Family(
        _RMS | _SIGMOID | {"qk_norm": True, "qkv_bias": False},
        _ALL_EXPERTS | {"mtp_layers": ("num_mtp_modules",)},
        UNTIED | {"head_dim": 128},
    ),
    "mistral4": _LATENT,
    "olmoe": Family(_RMS | {"qk_norm": True}, _ALL_EXPERTS | _BIAS, _UNBIASED | {"experts": 64, "top_k": 8}),
    "phimoe": Family(
        {"norm": "layernorm", "position": "rope", "linear_bias": False},
        _ALL_EXPERTS | _BIAS | _WINDOW,
        _UNBIASED | {"experts": 16, "top_k": 2},
    ),
    "solar_open": Family(_RMS | _SIGMOID, EXPERTS | _BIAS | _GROUPS, _UNBIASED | {"head_dim": 128}),
    "youtu": Family(_RMS | {"qkv_bias": False}, LATENT, {"activation": "silu", "tied_embeddings": True}),
}

UNKNOWN = Family(
    LLAMA,
    EXPERTS
    | LATENT
    | _WINDOW
    | {
        "experts": (*EXPERTS["experts"], "num_routed_experts", "moe_num_experts"),
        "top_k": (*EXPERTS["top_k"], "moe_topk", "moe_k", "moe_top_k"),
    }
    | {"shared_ffn": ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")}
    | {"qkv_bias": ("attention_bias", "use_qkv_bias", "qkv_bias"), "linear_bias": ("mlp_bias", "use_bias")}
    | {"qk_norm": ("use_qk_norm", "qk_layernorm")},
    UNTIED | {"qkv_bias": False, "linear_bias": False, "qk_norm": False},
    window_off=True,
)
"""What a type that is not known is taken for: a decoder as Llama's, or a mixture as DeepSeek's where it has keys of experts."""

UNKNOWN_WITH_LAYERNORM = Family(
    {"norm": "layernorm"},
    {**UNKNOWN.keys, "ffn": ("intermediate_size", "ffn_dim", "n_inner", "dff", "d_ff")},
    {"activation": "gelu", "tied_embeddings": True, "linear_bias": True, "qkv_bias": True, "qk_norm": False},
    gated=False,
    window_off=True,
)
"""The same where the file has a constant of LayerNorm and none of RMS norm: a decoder as GPT-2 or GPT-NeoX."""

NOT_DECODERS = {
    "cpmant": "attention with segments and biases of its own",
    "deepseek_v4": "compressed sparse attention, several residual streams, experts chosen by a hash",
    "doge": "experts of single rows, and dynamic masks",
    "hrm_text": "layers that are run again",
    "jetmoe": "experts in attention",
    "moshi": "a second decoder over codebooks",
    "qwen4_exp": "attention of another make",
    "xlnet": "permuted attention",
    "xlstm": "a recurrence of another make",
    "gemma3n": "per-layer embeddings and alternating updates",
    "gemma3n_text": "per-layer embeddings and alternating updates",
    "falcon_h1": "attention and Mamba side by side in a layer",
    "falcon_mamba": "Mamba-1 without attention",
    "mamba": "Mamba-1 without attention",
    "mllama": "layers of cross attention",
    "mllama_text_model": "layers of cross attention",
    "recurrent_gemma": "recurrent blocks of another make",
    "rwkv": "a recurrence of another make",
    "zamba": "a shared attention block between Mamba layers",
    "zamba2": "a shared attention block between Mamba layers",
    **dict.fromkeys(
        (
            "bart",
            "t5",
            "mt5",
            "umt5",
            "t5gemma",
            "pegasus",
            "marian",
            "mbart",
            "whisper",
            "m2m_100",
            "bigbird_pegasus",
            "blenderbot",
            "blenderbot-small",
            "mvp",
            "plbart",
            "prophetnet",
            "trocr",
        ),
        "an encoder with a decoder",
    ),
    **dict.fromkeys(
        (
            "albert",
            "bert",
            "bert-generation",
            "big_bird",
            "camembert",
            "data2vec-text",
            "deberta",
            "deberta-v2",
            "distilbert",
            "electra",
            "ernie",
            "esm",
            "git",
            "megatron-bert",
            "modernbert",
            "mpnet",
            "nomic_bert",
            "rembert",
            "roberta",
            "roberta-prelayernorm",
            "roc_bert",
            "roformer",
            "xlm",
            "xlm-roberta",
            "xlm-roberta-xl",
            "xmod",
        ),
        "an encoder",
    ),
    **dict.fromkeys(("clip", "siglip", "siglip2", "vit", "dinov2", "wav2vec2", "hubert", "clap"), "an encoder of images or sound"),
}
"""Types that are known and not modelled, with what they have that is missing here."""
