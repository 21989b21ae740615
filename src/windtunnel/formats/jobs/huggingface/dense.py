"""Hugging Face types of dense decoders, beside those in `families`.

Defaults and structure as in transformers' `configuration_<type>.py` and `modeling_<type>.py`; of types with code of their own
(baichuan, chatglm, exaone, internlm, phi3small, qwen, xverse) as in their repositories.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windtunnel.formats.jobs.huggingface.families import LLAMA, UNTIED, Family
from windtunnel.formats.jobs.huggingface.rewrites import baichuan, chatglm, exaone, falcon, gpt_bigcode, gpt_neo, phi3small, qwen

_RMS: dict[str, Any] = LLAMA | {"linear_bias": False}
_LAYERNORM: dict[str, Any] = {"norm": "layernorm", "position": "rope", "linear_bias": False}
_WINDOW = {"window": ("sliding_window",)}
_BIAS = {"qkv_bias": ("attention_bias",)}
_BIASES = _BIAS | {"linear_bias": ("mlp_bias",)}
_UNBIASED = UNTIED | {"qkv_bias": False}
_PLAIN = UNTIED | {"qkv_bias": False, "linear_bias": False}
_TIED = {"activation": "silu", "tied_embeddings": True}
_GELU = {"activation": "gelu_pytorch_tanh", "tied_embeddings": True, "qkv_bias": False, "head_dim": 256}

_LLAMA_LIKE = Family(LLAMA, _BIASES, _PLAIN)
_QWEN2 = Family(_RMS | {"qkv_bias": True}, _WINDOW, UNTIED, window_off=True)
_GPTJ = Family(
    {"norm": "layernorm", "position": "rope", "linear_bias": True, "qkv_bias": False, "parallel_block": True},
    {},
    {"activation": "gelu_new", "tied_embeddings": False},
    gated=False,
)

DENSE: dict[str, Family] = {
    "aquila": _LLAMA_LIKE,
    "apertus": Family(
        _RMS | {"qk_norm": True, "activation": "relu2"},
        _BIAS,
        {"tied_embeddings": False, "qkv_bias": False},
        gated=False,
        notes=("activation xIELU counts as squared ReLU",),
    ),
    "arcee": Family(LLAMA, _BIASES, _PLAIN | {"activation": "relu2"}, gated=False),
    "baichuan": Family({"norm": "rmsnorm", "linear_bias": False}, {}, UNTIED, rewrite=baichuan),
    "bitnet": Family(
        _RMS | {"activation": "silu"},
        _BIAS,
        {"tied_embeddings": False, "qkv_bias": False},
        notes=("weights are trained in 16 bits", "the gate of squared ReLU counts as SwiGLU"),
    ),
    "chatglm": Family(_RMS, {"qkv_bias": ("add_qkv_bias",)}, UNTIED | {"qkv_bias": True}, rewrite=chatglm),
    "codegen": _GPTJ,
    "cohere": Family(
        _LAYERNORM | {"parallel_block": True},
        _BIAS | {"qk_norm": ("use_qk_norm",)},
        _TIED | {"qkv_bias": False, "qk_norm": False},
    ),
    "cohere2": Family(_LAYERNORM | {"parallel_block": True}, _WINDOW | _BIAS, _TIED | {"qkv_bias": False}, period=4),
    "cwm": Family(LLAMA, _WINDOW | _BIASES, _PLAIN | {"head_dim": 128}, period=4),
    "ernie4_5": Family(LLAMA, {"linear_bias": ("use_bias",)}, _TIED | {"linear_bias": False, "head_dim": 128}),
    "exaone": Family(_RMS, {}, UNTIED, rewrite=exaone),
    "exaone4": Family(_RMS | {"qk_norm": True, "qkv_bias": False}, _WINDOW, UNTIED, period=4, rewrite=exaone),
    "falcon": Family(
        {"norm": "layernorm"},
        {"linear_bias": ("bias",), "ffn": ("ffn_hidden_size",), "activation": ("activation",)},
        {"activation": "gelu", "tied_embeddings": True, "linear_bias": False},
        gated=False,
        rewrite=falcon,
    ),
    "gemma2": Family(_RMS | {"post_norms": True}, _WINDOW | _BIAS, _GELU | {"window": 4096}, period=2),
    "glm": Family(_RMS, _BIAS, UNTIED | {"qkv_bias": True, "head_dim": 128}),
    "glm4": Family(_RMS | {"post_norms": True}, _BIAS, UNTIED | {"qkv_bias": True, "head_dim": 128}),
    "gpt_bigcode": Family(
        {"norm": "layernorm", "position": "learned", "linear_bias": True},
        {},
        {"activation": "gelu_pytorch_tanh", "tied_embeddings": True},
        gated=False,
        rewrite=gpt_bigcode,
    ),
    "gpt_neo": Family(
        {"norm": "layernorm", "position": "learned", "linear_bias": True, "qkv_bias": False},
        {"window": ("window_size",)},
        {"activation": "gelu_new", "tied_embeddings": True},
        gated=False,
        rewrite=gpt_neo,
    ),
    "gptj": _GPTJ,
    "granite": _LLAMA_LIKE,
    "helium": Family(LLAMA, _BIASES, _PLAIN | {"head_dim": 128}),
    "hunyuan_v1_dense": Family(_RMS, _BIAS | {"qk_norm": ("use_qk_norm", "qk_norm")}, _UNBIASED | {"qk_norm": True}),
    "hyperclovax": Family(LLAMA | {"post_norms": True}, _BIASES, _PLAIN),
    "internlm": Family(_RMS, {"qkv_bias": ("bias",)}, UNTIED | {"qkv_bias": True}),
    "internlm2": Family(_RMS, {"qkv_bias": ("bias",)}, UNTIED | {"qkv_bias": False}),
    "internlm3": Family(LLAMA, {"qkv_bias": ("qkv_bias",), "linear_bias": ("bias",)}, _PLAIN),
    "jais2": Family(
        {"norm": "layernorm", "position": "rope"},
        _BIASES,
        {"activation": "relu2", "tied_embeddings": False, "qkv_bias": True, "linear_bias": True},
        gated=False,
    ),
    "mimo": replace(_QWEN2, keys=_WINDOW | {"mtp_layers": ("num_nextn_predict_layers",)}),
    "minicpm": Family(_RMS, _BIAS, _TIED | {"qkv_bias": False}),
    "ministral": Family(_RMS, _WINDOW, UNTIED),
    "ministral3": Family(_RMS, _WINDOW, UNTIED | {"head_dim": 128}),
    "nanochat": Family(_RMS, _BIAS, _UNBIASED | {"activation": "relu2"}, gated=False),
    "olmo": Family(_LAYERNORM, _BIAS, _UNBIASED),
    "olmo2": Family(_RMS | {"qk_norm": True}, _BIAS, _UNBIASED),
    "olmo3": Family(_RMS | {"qk_norm": True}, _BIAS | _WINDOW, _UNBIASED | {"window": 4096}, period=4),
    "orion": Family(_LAYERNORM, _BIAS, _UNBIASED),
    "persimmon": Family(
        _LAYERNORM | {"linear_bias": True},
        {"qk_norm": ("qk_layernorm",)},
        {"activation": "relu2", "tied_embeddings": False, "qk_norm": True},
        gated=False,
    ),
    "phi": Family(
        _LAYERNORM | {"linear_bias": True, "parallel_block": True},
        {"qk_norm": ("qk_layernorm",)},
        {"activation": "gelu_new", "tied_embeddings": False, "qk_norm": False},
        gated=False,
    ),
    "phi3small": Family(
        _LAYERNORM | {"linear_bias": True},
        {"ffn": ("ff_intermediate_size", "intermediate_size")},
        {"activation": "gegelu", "tied_embeddings": True},
        notes=("attention over all tokens: the block-sparse layers of this type are not modelled",),
        rewrite=phi3small,
    ),
    "phi4mm": Family(_RMS, _WINDOW, _TIED, notes=("the language model alone, without adapters",)),
    "qwen": Family(_RMS | {"qkv_bias": True}, {}, UNTIED, rewrite=qwen),
    "seed_oss": Family(LLAMA, _BIASES, _PLAIN | {"qkv_bias": True, "head_dim": 128}),
    "smollm3": Family(LLAMA, _WINDOW | _BIASES, _PLAIN | {"tied_embeddings": True}, window_off=True),
    "stablelm": Family(
        _LAYERNORM,
        {"qkv_bias": ("use_qkv_bias",), "parallel_block": ("use_parallel_residual",), "qk_norm": ("qk_layernorm",)},
        _UNBIASED | {"parallel_block": False, "qk_norm": False},
    ),
    "vaultgemma": Family(_RMS, _WINDOW | _BIAS, _GELU | {"window": 4096}, period=2),
    "xglm": Family(
        {"norm": "layernorm", "position": "none", "linear_bias": True},
        {"heads": ("attention_heads",)},
        {"activation": "gelu", "tied_embeddings": True},
        gated=False,
        notes=("sinusoidal positions cost nothing",),
    ),
    "xverse": _LLAMA_LIKE,
    "yi": _LLAMA_LIKE,
    "Yi": _LLAMA_LIKE,
}
