"""Hugging Face types whose configuration has keys of its own make: each function writes them as the common ones.

Sources: transformers' `configuration_<type>.py` for falcon, gemma4, gpt_bigcode, gpt_neo, dbrx,
exaone4, ernie4_5_moe, hunyuan_v1_moe, longcat_flash, glm_moe_dsa, deepseek_v4 and mimo_v2_flash;
the repositories of the models for baichuan, chatglm, exaone, phi3small, qwen, arctic and bailing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.huggingface.hybrids import LARGEST, natural, pattern

Rewritten = tuple[dict[str, Any], set[str]]


def falcon(config: Mapping[str, Any]) -> Rewritten:
    """One key/value head by default (`multi_query`); those of `num_kv_heads` in the new architecture."""
    used = {"multi_query", "new_decoder_architecture", "num_kv_heads", "n_head_kv", "alibi", "parallel_attn"}
    more = {**config, "parallel_block": config.get("parallel_attn", True)}
    heads = natural(config, "num_kv_heads", natural(config, "n_head_kv", 0))
    if config.get("new_decoder_architecture", False):
        more["num_key_value_heads"] = heads or config.get("num_attention_heads", config.get("n_head"))
    elif config.get("multi_query", True):
        more["num_key_value_heads"] = 1
    more["position"] = "alibi" if config.get("alibi") else "rope"
    return more, used


def gpt_bigcode(config: Mapping[str, Any]) -> Rewritten:
    """One key/value head unless `multi_query` is false."""
    more = dict(config)
    if config.get("multi_query", True):
        more["num_key_value_heads"] = 1
    return more, {"multi_query"}


def gpt_neo(config: Mapping[str, Any]) -> Rewritten:
    """`attention_types` lists (kinds, repetitions)."""
    more = {**config, "window_size": config.get("window_size", 256)}
    kinds: list[str] = []
    for entry in config.get("attention_types") or [[["global", "local"], natural(config, "num_layers", 24) // 2]]:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], list) or not isinstance(entry[1], int):
            raise SpecError("attention_types", entry, "pairs of kinds and a number")
        if not 0 <= entry[1] <= 10_000:
            raise SpecError("attention_types", entry[1], "a number of repetitions up to 10000")
        kinds += [str(kind) for kind in entry[0]] * entry[1]
    more["layer_types"] = ["sliding_attention" if kind == "local" else "full_attention" for kind in kinds]
    return more, {"attention_types", "attention_layers"}


def phi3small(config: Mapping[str, Any]) -> Rewritten:
    """Only the names differ."""
    return dict(config), {"gegelu_limit"}


def exaone(config: Mapping[str, Any]) -> Rewritten:
    """`sliding_window_pattern` may be letters: "LLLG"."""
    more, letters = dict(config), config.get("sliding_window_pattern")
    if isinstance(letters, str):
        if not letters or set(letters) - {"L", "G"} or len(letters) > 256:
            raise SpecError("sliding_window_pattern", letters, "letters L and G")
        layers = min(10_000, natural(config, "num_hidden_layers", natural(config, "num_layers", 0)))
        kinds = {"L": "sliding_attention", "G": "full_attention"}
        more.setdefault("layer_types", [kinds[letters[i % len(letters)]] for i in range(layers)])
        del more["sliding_window_pattern"]
    return more, {"sliding_window_pattern"} if isinstance(letters, str) else set()


def baichuan(config: Mapping[str, Any]) -> Rewritten:
    """The 7B has rotary embeddings, the 13B (hidden size 5120) ALiBi: the classes share one type."""
    more = {**config, "position": "rope" if config.get("hidden_size") == 4096 else "alibi"}
    if "model_max_length" in config:
        more.setdefault("max_position_embeddings", config["model_max_length"])
    return more, {"model_max_length"}


def chatglm(config: Mapping[str, Any]) -> Rewritten:
    """Multi-query attention by groups; an inner width of the gated MLP beside `ffn_hidden_size`."""
    more = dict(config)
    names = {
        "num_layers": "num_hidden_layers",
        "ffn_hidden_size": "intermediate_size",
        "kv_channels": "head_dim",
        "padded_vocab_size": "vocab_size",
        "seq_length": "max_position_embeddings",
    }
    if "padded_vocab_size" not in config and "inner_hidden_size" in config:
        raise SpecError("model_type", "chatglm", "ChatGLM2 or later", "The first ChatGLM is a prefix decoder of another make.")
    more |= {ours: config[name] for name, ours in names.items() if name in config}
    if config.get("multi_query_attention", True):
        more["num_key_value_heads"] = natural(config, "multi_query_group_num", 1) or 1
    return more, {*names, "multi_query_attention", "multi_query_group_num"}


def qwen(config: Mapping[str, Any]) -> Rewritten:
    """`intermediate_size` is that of both halves of the gated MLP together."""
    width = natural(config, "intermediate_size", 22016)
    more = {**config, "intermediate_size": max(1, width // 2)}
    more |= {
        ours: config[name]
        for name, ours in (("kv_channels", "head_dim"), ("seq_length", "max_position_embeddings"))
        if name in config
    }
    return more, {"kv_channels", "seq_length"}


def gemma4(config: Mapping[str, Any]) -> Rewritten:
    """Heads of another shape in layers that see all tokens; experts beside a dense MLP in the mixtures; last layers over keys of
    earlier ones, with wider MLPs, and embeddings for each layer.

    Earlier files name those heads at the top, later ones in `per_layer_config`, layer by layer.
    """
    unstated = 0 if str(config.get("model_type")).startswith("gemma4_unified") else 256
    used = {"attention_k_eq_v", "enable_moe_block", "hidden_size_per_layer_input", "num_kv_shared_layers", "per_layer_config"}
    more = {"global_head_dim": 512, **config}
    count, reused = natural(config, "num_hidden_layers", 30), natural(config, "num_kv_shared_layers", 0)
    if reused:
        more["mixer_pattern"] = f"A{max(1, count - reused)}R{reused}"
        more |= {"reuse_ffn": 2 * natural(config, "intermediate_size", 9216)} if config.get("use_double_wide_mlp") else {}
    key = "hidden_size_per_layer_input"
    more["per_layer_dim"] = natural(config, key, 0 if key in config else unstated) or None
    tables = [natural(config, name, 262_144) for name in ("vocab_size", "vocab_size_per_layer_input")]
    if more["per_layer_dim"] and tables[0] != tables[1]:
        raise SpecError("vocab_size_per_layer_input", tables[1], f"vocab_size = {tables[0]}")
    layers = config.get("per_layer_config") or {}
    if not isinstance(layers, Mapping) or not all(isinstance(one, Mapping) for one in layers.values()):
        raise SpecError("per_layer_config", layers, "a table with one table a layer")
    for one in layers.values():
        more |= {ours: one[key] for key, ours in _GLOBAL.items() if key in one}
    if not config.get("attention_k_eq_v"):
        more.pop("num_global_key_value_heads", None)
    if config.get("enable_moe_block"):
        more |= {"num_experts_per_tok": config.get("top_k_experts"), "shared_intermediate_size": config.get("intermediate_size")}
    else:
        more = {key: value for key, value in more.items() if key not in ("num_experts", "moe_intermediate_size")}
    used |= {"global_head_dim", "num_global_key_value_heads", "top_k_experts", "num_experts", "moe_intermediate_size"}
    return more, used | {"use_double_wide_mlp", "vocab_size_per_layer_input"}


_GLOBAL = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}


def longcat(config: Mapping[str, Any]) -> Rewritten:
    """A layer has two attentions and two dense MLPs, and experts beside the first MLP: two layers here, the first with experts.

    Of the experts that a token picks, `zero_expert_num` do nothing.
    """
    layers, width = natural(config, "num_layers", 28), natural(config, "ffn_hidden_size", 12288)
    experts, idle = natural(config, "n_routed_experts", 512), natural(config, "zero_expert_num", 256)
    picked = natural(config, "moe_topk", 12)
    more = {
        **config,
        "num_hidden_layers": 2 * layers,
        "intermediate_size": width,
        "shared_intermediate_size": width,
        "moe_intermediate_size": config.get("expert_ffn_hidden_size", 2048),
        "num_experts_per_tok": max(1, round(picked * experts / max(1, experts + idle))),
        "mlp_layer_types": ["sparse", "dense"] * min(layers, 5_000),
    }
    return more, {"num_layers", "ffn_hidden_size", "expert_ffn_hidden_size", "moe_topk", "zero_expert_num", "zero_expert_type"}


def dbrx(config: Mapping[str, Any]) -> Rewritten:
    """Attention and experts stand in tables of their own."""
    attention, feed = config.get("attn_config") or {}, config.get("ffn_config") or {}
    for name, table in (("attn_config", attention), ("ffn_config", feed)):
        if not isinstance(table, Mapping):
            raise SpecError(name, table, "an object")
    more = {
        **config,
        "num_key_value_heads": attention.get("kv_n_heads", 1),
        "num_experts": feed.get("moe_num_experts", 4),
        "num_experts_per_tok": feed.get("moe_top_k", 1),
        "moe_intermediate_size": feed.get("ffn_hidden_size", 3584),
    }
    return more, {"attn_config", "ffn_config"}


def arctic(config: Mapping[str, Any]) -> Rewritten:
    """A dense MLP as wide as the hidden size stands beside the experts (`parallel_attn_mlp_res`)."""
    more = {**config, "moe_intermediate_size": config.get("intermediate_size")}
    if config.get("parallel_attn_mlp_res", True):
        more["shared_intermediate_size"] = config.get("hidden_size")
    every = natural(config, "moe_layer_frequency", 2)
    more["decoder_sparse_step"] = max(1, every)
    return more, {"parallel_attn_mlp_res", "moe_layer_frequency", "use_residual"}


def bailing(config: Mapping[str, Any]) -> Rewritten:
    """Shared experts are counted in widths of an expert, or have a width of their own."""
    more = dict(config)
    width = natural(config, "moe_shared_expert_intermediate_size", 0) or natural(config, "moe_intermediate_size", 0)
    more["shared_intermediate_size"] = natural(config, "num_shared_experts", 0) * width
    return more, {"num_shared_experts", "moe_shared_expert_intermediate_size"}


def ernie_moe(config: Mapping[str, Any]) -> Rewritten:
    """Experts from `moe_layer_start_index` to `moe_layer_end_index`, every `moe_layer_interval` layers."""
    more, layers = dict(config), min(10_000, natural(config, "num_hidden_layers", 28))
    first, every = natural(config, "moe_layer_start_index", 1), max(1, natural(config, "moe_layer_interval", 1))
    last = config.get("moe_layer_end_index", -1)
    last = layers - 1 if not isinstance(last, int) or last < 0 else last
    names = {"moe_num_experts": "num_experts", "moe_k": "num_experts_per_tok"}
    for name, ours in names.items():
        if name in config:
            more[ours] = _single_number(config[name], name)
    if "moe_intermediate_size" in config:
        more["moe_intermediate_size"] = _single_number(config["moe_intermediate_size"], "moe_intermediate_size")
    more["mlp_only_layers"] = [i for i in range(layers) if not (first <= i <= last and (i + 1) % every == 0)]
    more["shared_intermediate_size"] = natural(config, "moe_num_shared_experts", 0) * (more.get("moe_intermediate_size") or 0)
    read = {"moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval", "moe_num_shared_experts"}
    return more, read | set(names)


def hunyuan_moe(config: Mapping[str, Any]) -> Rewritten:
    """Numbers may be lists with one entry a layer; `moe_topk` and `num_shared_expert` are the type's own words."""
    more = dict(config)
    for name, ours in (("moe_topk", "num_experts_per_tok"), ("num_experts", "num_experts"), ("moe_intermediate_size",) * 2):
        if config.get(name) is not None:
            more[ours] = _single_number(config[name], name)
    width = more.get("moe_intermediate_size") or config.get("intermediate_size") or 0
    if isinstance(width, int) and not isinstance(width, bool):
        more["moe_intermediate_size"] = width
        shared = (
            _single_number(config.get("num_shared_expert") or 0, "num_shared_expert")
            if config.get("use_mixed_mlp_moe", True)
            else 0
        )
        more["shared_intermediate_size"] = shared * width
    first = natural(config, "moe_layer_num_skipped", 0)
    if first:
        more["first_k_dense_replace"] = first
    return more, {"moe_topk", "num_shared_expert", "use_mixed_mlp_moe", "moe_layer_num_skipped"}


def _single_number(value: object, key: str) -> int:
    """A whole number, or the first of a list of equal ones."""
    one = value[0] if isinstance(value, list) and value else value
    if isinstance(value, list) and any(other != one for other in value):
        raise SpecError(key, value, "the same number for every layer", "Layers of several widths are not modelled.")
    if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one <= LARGEST:
        raise SpecError(key, Nothing() if one is None else one, f"a whole number from 0 to {LARGEST}")
    return one


def index_shared(config: Mapping[str, Any]) -> Rewritten:
    """Layers that take the keys which the indexer of another layer picked (GLM-5.2) have an indexer of their own here."""
    return dict(config), {"indexer_types", "index_topk_freq", "index_topk_pattern", "index_share_for_mtp_iteration"}


def one_key(config: Mapping[str, Any]) -> Rewritten:
    """DeepSeek-V4: all heads share one key, whose width is that of a head."""
    return {"num_key_value_heads": 1, "n_shared_experts": 1, **config}, {"num_hash_layers", "hc_eps", "hc_sinkhorn_iters"}


def minimax_m3(config: Mapping[str, Any]) -> Rewritten:
    """`intermediate_size` is that of an expert; numbers of the indexer have a table, or names of their own in transformers 5."""
    more, sparse = dict(config), config.get("sparse_attention_config") or {}
    if not isinstance(sparse, Mapping):
        raise SpecError("sparse_attention_config", sparse, "an object")
    layers = min(10_000, natural(config, "num_hidden_layers", 0))
    more["moe_intermediate_size"] = config.get("moe_intermediate_size", config.get("intermediate_size"))
    more["intermediate_size"] = config.get("dense_intermediate_size", config.get("intermediate_size"))
    blocks = natural(sparse, "sparse_topk_blocks", natural(config, "index_topk_blocks", 0))
    size = natural(sparse, "sparse_block_size", natural(config, "index_block_size", 128))
    types = config.get("layer_types")
    sparse_layers = sparse.get("sparse_attention_freq")
    if isinstance(types, list):
        sparse_layers = [int(kind != "full_attention") for kind in types]
    if not isinstance(sparse_layers, list) or len(sparse_layers) != layers:
        sparse_layers = [int(blocks > 0)] * layers
    if blocks and any(sparse_layers):
        more["index_topk"] = blocks * size
        more["index_n_heads"] = sparse.get("sparse_num_index_heads", config.get("index_n_heads"))
        more["index_head_dim"] = sparse.get("sparse_index_dim", config.get("index_head_dim"))
        more["window_pattern"] = pattern(["L" if picks else "G" for picks in sparse_layers])
    more.pop("layer_types", None)
    read = {"sparse_attention_config", "dense_intermediate_size", "index_topk_blocks", "index_block_size", "index_local_blocks"}
    read |= {"layer_types", "index_n_heads", "index_head_dim"}
    return more, read | {"n_shared_experts", "use_qk_norm", "qk_norm_type", "use_gemma_norm", "swiglu_alpha", "swiglu_limit"}


def mimo(config: Mapping[str, Any]) -> Rewritten:
    """Layers with the window have key/value heads of their own number, and values are narrower than keys."""
    more = dict(config)
    layers = min(10_000, natural(config, "num_hidden_layers", 48))
    wide = natural(config, "head_dim", 192)
    more["head_dim"] = max(1, (wide + natural(config, "v_head_dim", wide)) // 2)
    near, far = natural(config, "swa_num_key_value_heads", 0), natural(config, "num_key_value_heads", 0)
    if near and far and near != far:
        more |= {"num_key_value_heads": near, "global_kv_heads": far}
    numbers, block = config.get("hybrid_layer_pattern"), natural(config, "hybrid_block_size", 0)
    if numbers is None and not isinstance(config.get("layer_types"), list):
        numbers = [int((i + 1) % block != 0) if block else int(i % 6 != 0 and i != layers - 1) for i in range(layers)]
    if numbers is not None:
        if not isinstance(numbers, list) or len(numbers) != layers or any(number not in (0, 1) for number in numbers):
            raise SpecError("hybrid_layer_pattern", numbers, f"0 (all tokens) or 1 (the window) for each of the {layers} layers")
        more["layer_types"] = ["sliding_attention" if number else "full_attention" for number in numbers]
    read = {"v_head_dim", "hybrid_layer_pattern", "hybrid_block_size", "sliding_window_size", "attention_chunk_size", "head_dim"}
    return more, read | {key for key in config if key.startswith(("swa_", "add_"))}


def of_list(config: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Nemotron-H of transformers 5 has as many layers as its list or its letters."""
    listed = config.get("layers_block_type") or config.get("hybrid_override_pattern")
    many = {"num_hidden_layers": len(listed)} if isinstance(listed, (list, str)) and listed else {}
    return many | dict(config), set()


def of_types(config: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Kimi Linear of transformers 5 has lists of types and flat keys; files of its authors have `linear_attn_config`."""
    if config.get("linear_attn_config") is not None or not isinstance(config.get("layer_types"), list):
        return dict(config), set()
    names = {"linear_num_heads": "num_heads", "linear_head_dim": "head_dim", "linear_conv_kernel_dim": "short_conv_kernel_size"}
    inner = {theirs: config[ours] for ours, theirs in names.items() if ours in config}
    inner["full_attn_layers"] = [i for i, kind in enumerate(config["layer_types"], 1) if kind == "full_attention"]
    feeds = config.get("mlp_layer_types")
    dense = {"first_k_dense_replace": feeds.count("dense")} if isinstance(feeds, list) else {}
    return {**config, "linear_attn_config": inner} | dense, {*names, "layer_types", "mlp_layer_types"}
