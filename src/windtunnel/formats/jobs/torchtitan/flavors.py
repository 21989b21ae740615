"""torchtitan's models by name and flavor, as models of the catalogue or as tables.

Sizes of the debug models: `torchtitan/models/*/__init__.py` of v0.2.2; what they leave out has the default of `model/args.py`.
"""

from __future__ import annotations

from typing import Any

FLAVORS = {
    "llama3-8b": "llama3.1-8b",
    "llama3-70b": "llama3.1-70b",
    "llama3-405b": "llama3.1-405b",
    "deepseek_v3-16b": "deepseek-v2-lite",
    "deepseek_v3-236b": "deepseek-v2",
    "deepseek_v3-671b": "deepseek-v3",
    "kimi_k2_7-kimi-k2.5": "kimi-k2",
    "kimi_k2_7-kimi-vl-a3b": "moonlight-16b-a3b",
    "llama4-17bx16e": "llama4-scout",
    "llama4-17bx128e": "llama4-maverick",
}
"""Models of the catalogue; what is not here has the name of its flavor."""

ATTENTION_SUFFIXES = ("_flex_attn", "_varlen_attn", "_flex", "_varlen", "_irope")
"""Ends of flavors that choose an attention kernel, not a network."""

_COMMON = {"vocab": 2048, "max_seq": 2048, "activation": "swiglu", "norm": "rmsnorm", "position": "rope", "linear_bias": False}
_LLAMA = {**_COMMON, "layers": 6, "hidden": 256, "heads": 16, "ffn": 768, "tied_embeddings": False}
_GROUPED = {"layers": 8, "hidden": 256, "heads": 16, "kv_heads": 8, "head_dim": 128, "ffn": 3072, "qk_norm": True}
_QWEN = {**_COMMON, **_GROUPED, "max_seq": 4096}
_LLAMA4 = {"experts": 8, "top_k": 1, "expert_ffn": 768, "shared_ffn": 768, "layer_pattern": "DEDEDE", "router": "sigmoid"}
_LATENT = {"kv_lora_rank": 512, "qk_nope_dim": 128, "qk_rope_dim": 64, "v_dim": 128}
_DEEPSEEK = {
    "layers": 6,
    "hidden": 256,
    "heads": 16,
    "ffn": 1024,
    "experts": 8,
    "top_k": 3,
    "expert_ffn": 256,
    "shared_ffn": 512,
    "layer_pattern": "D1E5",
    "tied_embeddings": False,
}
_QWEN35 = {
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "attention_gate": True,
    "mixer_pattern": "L3A",
    "linear_heads": 4,
    "linear_key_heads": 4,
    "linear_key_dim": 64,
    "linear_value_dim": 64,
    "vocab": 248320,
    "tied_embeddings": False,
}
_GPT_OSS = {
    "layers": 4,
    "hidden": 256,
    "heads": 64,
    "kv_heads": 8,
    "head_dim": 64,
    "ffn": 2880,
    "experts": 8,
    "top_k": 4,
    "window": 128,
    "window_pattern": "LG",
    "attention_sinks": True,
    "vocab": 201088,
    "linear_bias": True,
    "tied_embeddings": False,
}
_GLIMMER = {
    **_COMMON,
    "source": "torchtitan, main of August 2026: torchtitan/models/muse_glimmer",
    "layers": 8,
    "hidden": 256,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "ffn": 768,
    "max_seq": 4096,
    "window": 128,
    "window_pattern": "L3G",
    "post_norms": True,
    "qk_norm": True,
    "attention_gate": True,
    "tied_embeddings": False,
}
_GLIMMER_30B = {"layers": 52, "hidden": 6656, "heads": 32, "head_dim": 128, "ffn": 19968, "vocab": 202048, "window": 2048}
_DEBUG: dict[str, dict[str, Any]] = {
    "llama3": _LLAMA,
    "llama4": {**_LLAMA, **_LLAMA4},
    "qwen3": {**_QWEN, "tied_embeddings": True},
    "deepseek_v3": {**_COMMON, **_DEEPSEEK, **_LATENT},
    "gpt_oss": {**_COMMON, **_GPT_OSS},
    "kimi_k2_7": {**_COMMON, **_DEEPSEEK, **_LATENT},
    "muse_glimmer": _GLIMMER,
}
TABLES: dict[str, dict[str, Any]] = {f"{name}-debugmodel": table for name, table in _DEBUG.items()} | {
    "qwen3-debugmodel_non_fused_qkv": {**_QWEN, "tied_embeddings": True},
    "qwen3_5-debugmodel": {**_QWEN, **_QWEN35, "layers": 8, "ffn": 512},
    "qwen3_5-debugmodel_moe": {**_QWEN, **_QWEN35, "layers": 4, "experts": 8, "top_k": 2, "expert_ffn": 256, "shared_ffn": 256},
    "muse_glimmer-30b": {**_GLIMMER, **_GLIMMER_30B, "max_seq": 16384},
    "qwen3-debugmodel_moe": {**_QWEN, "experts": 64, "top_k": 8, "expert_ffn": 768, "tied_embeddings": False},
}
"""Models that only tests use, and one that the catalogue lacks, as tables of `spec.Model`. Muse Glimmer: main of August 2026,
without the factor and the cap on its logits."""
