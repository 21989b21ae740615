"""Hugging Face types whose layers are not all attention: Mamba-2, linear attention, and layers of one sub-module.

Keys as in the configuration classes of transformers (`configuration_<type>.py`), and of the models' own repositories for nemotron_h
and kimi_linear.

Hugging Face keys of MoE models and of models with several kinds of layers: patterns of layers, shared experts, routing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.huggingface.families import Family

LOCAL = ("sliding_attention", "chunked_attention")
LARGEST = 10**9
"""No size of a network in use is larger."""


def fill_mixture(
    kind: str, family: Family, config: Mapping[str, Any], table: dict[str, Any], used: set[str], assumed: list[str]
) -> None:
    """Fills `table` with patterns of layers, shared experts and routing, and notes which keys were read."""
    layers = int(table["layers"])
    dense = _dense(config, layers, used)
    if dense is not None and any(dense):
        table["layer_pattern"] = pattern(["D" if d else "E" for d in dense])
    used.update(key for key in ("use_sliding_window", "max_window_layers") if key in config)
    if table.get("window"):
        _windows(family, config, table, layers, used, assumed)
    for name in ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"):
        if name in config and table.get("experts"):
            used.add(name)
            table["shared_ffn"] = table.get("shared_ffn") or natural(config, name, 0) * int(
                table.get("expert_ffn") or table.get("ffn") or 0
            )
    if kind == "llama4_text":
        if "expert_ffn" not in table:
            raise SpecError("intermediate_size", Nothing(), "the key intermediate_size in config.json: the width of an expert")
        table["shared_ffn"] = table["expert_ffn"]
        assumed.append("one shared expert, as wide as a routed one")
        used.update(key for key in ("use_qk_norm", "moe_layers") if key in config)
    if "scoring_func" in config:
        used.add("scoring_func")
        table["router"] = "sigmoid" if config["scoring_func"] == "sigmoid" else "softmax"
    if "topk_method" in config:
        used.add("topk_method")
        table["balance"] = "bias" if config["topk_method"] == "noaux_tc" else "aux_loss"
        if config["topk_method"] == "greedy":  # no groups are chosen, whatever n_group says
            table["router_groups"] = table["router_top_groups"] = 1
    if table.get("mtp_layers"):
        assumed.append(f"{table['mtp_layers']} layer(s) that predict further tokens are trained (mtp_layers = 0 leaves them out)")


def pattern(letters: Sequence[str]) -> str:
    """The shortest pattern whose repetition gives `letters`: "LG", "L5G", "D3E58"."""
    size = _period(letters)
    runs = [(letter, len(list(run))) for letter, run in groupby(letters[:size])]
    return "".join(letter if count == 1 else f"{letter}{count}" for letter, count in runs)


def _period(letters: Sequence[str]) -> int:
    """The least n with letters[i] = letters[i - n] throughout, in linear time (the failure function of Knuth, Morris, Pratt)."""
    border = [0] * len(letters)  # of every prefix: the longest proper prefix of it that is also its suffix
    for end in range(1, len(letters)):
        length = border[end - 1]
        while length and letters[end] != letters[length]:
            length = border[length - 1]
        border[end] = length + (letters[end] == letters[length])
    return len(letters) - border[-1]


def _dense(config: Mapping[str, Any], layers: int, used: set[str]) -> list[bool] | None:
    """Which layers have a dense MLP, where the configuration says."""
    names = (
        "first_k_dense_replace",
        "num_dense_layers",
        "moe_layer_freq",
        "decoder_sparse_step",
        "mlp_only_layers",
        "interleave_moe_layer_step",
        "mlp_layer_types",
    )
    if not any(config.get(name) is not None for name in names):
        return None
    used.update(name for name in names if name in config)
    kinds = config.get("mlp_layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers or set(map(str, kinds)) - {"dense", "sparse"}:
            raise SpecError("mlp_layer_types", kinds, f"dense or sparse for each of the {layers} layers")
        return [one == "dense" for one in kinds]
    first = natural(config, "first_k_dense_replace", natural(config, "num_dense_layers", 0))
    freq = config.get("moe_layer_freq")
    if isinstance(freq, list):  # a 0 or 1 for each layer
        if len(freq) != layers or any(one not in (0, 1) for one in freq):
            raise SpecError("moe_layer_freq", freq, f"0 or 1 for each of the {layers} layers, or one number")
        return [one == 0 for one in freq]
    every = max(1, natural(config, "moe_layer_freq", 1))
    step = max(1, natural(config, "decoder_sparse_step", 1), natural(config, "interleave_moe_layer_step", 1))
    only = config.get("mlp_only_layers") or []
    if not isinstance(only, list) or not all(isinstance(layer, int) for layer in only):
        raise SpecError("mlp_only_layers", only, "a list of layer numbers")
    dense = frozenset(only)
    return [i < first or i % every != 0 or (i + 1) % step != 0 or i in dense for i in range(layers)]


def _windows(
    family: Family, config: Mapping[str, Any], table: dict[str, Any], layers: int, used: set[str], assumed: list[str]
) -> None:
    """Which layers have the window: a list of layer types, a period, or what the type always does."""
    names = ("layer_types", "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", "no_rope_layers")
    used.update(name for name in names if name in config)
    types = config.get("layer_types")
    if isinstance(types, list):
        if len(types) != layers:
            raise SpecError("layer_types", f"{len(types)} entries", f"one for each of the {layers} layers")
        table["window_pattern"] = pattern(["L" if name in LOCAL else "G" for name in types])
    elif family.window_off and not config.get("use_sliding_window", False):
        table.pop("window")
    elif family.period is not None:
        period = family.period
        for name in reversed(names[1:4]):
            period = natural(config, name, period)
        table["window_pattern"] = pattern(["L" if (i + 1) % max(1, period) else "G" for i in range(layers)])
        assumed.append(f"every {period}th layer sees all tokens, the others a window of {table['window']}")
    elif family.window_off and natural(config, "max_window_layers", 0):
        first = min(layers, natural(config, "max_window_layers", 0))
        table["window_pattern"] = pattern(["G" if i < first else "L" for i in range(layers)])
        assumed.append(f"a window of {table['window']} in the layers after the first {first}")
    else:
        assumed.append(f"sliding window of {table['window']} in every layer")


def natural(config: Mapping[str, Any], key: str, default: int) -> int:
    """The whole number of 0 or more at `key`, `default` where it is left out or null; SpecError for anything else."""
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise SpecError(key, value, f"a whole number from 0 to {LARGEST}")
    return value


_LETTERS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}
"""Of `layers_block_type`; transformers 5 writes linear_attention for Mamba and full_attention for attention."""
_MIXERS = {"mamba": "M", "attention": "A", "full_attention": "A", "linear_attention": "L"}


def hybrid(kind: str, config: Mapping[str, Any], table: dict[str, Any], used: set[str], assumed: list[str]) -> None:
    """Fills `table` with what each layer is, and notes which keys were read."""
    layers = int(table["layers"])
    if kind == "nemotron_h":
        _one_module(config, table, layers, used)
        if table.pop("n_shared_experts", 1) and "n_shared_experts" in config:
            used.add("n_shared_experts")
    elif kind == "mamba2":
        table |= {"layer_pattern": "M", "head_dim": table["ssm_head_dim"], "ffn": table["hidden"]}
    elif kind == "bamba":
        indices = _indices(config, "attn_layer_indices", layers, first=0)
        used.add("attn_layer_indices")
        table["mixer_pattern"] = pattern(["A" if i in indices else "M" for i in range(layers)])
    elif kind == "kimi_linear":
        _kimi(config, table, layers, used)
        if int(table["hidden"]) % int(table["heads"]) and not table.get("head_dim"):  # of latent attention nothing asks for it
            table["head_dim"] = table.get("v_dim")
        left_out = [key for key in ("mla_use_output_gate", "attn_res_block_size") if config.get(key)]
        if left_out:
            assumed.append(
                f"left out: output gates of full rank, residuals of attention over blocks of layers ({', '.join(left_out)})"
            )
            used.update(left_out)
    elif kind == "glm5_next_text":
        _glm_next(config, table, layers, used)
    elif kind == "deepseek_v4":
        _read_compression(config, table, layers, used, assumed)
    elif kind == "jamba":
        _jamba(config, table, layers, used)
    elif kind in ("lfm2", "lfm2_moe"):
        _lfm2(config, table, layers, used)
    else:
        table["mixer_pattern"] = _types(config, layers, used, linear="M" if kind == "granitemoehybrid" else "L")
    if kind.startswith("minimax"):
        _lightning(config, table, used)
    elif kind == "olmo_hybrid":
        _olmo(table)
    if kind == "granitemoehybrid" and not config.get("num_local_experts"):
        for name in ("experts", "expert_ffn", "shared_ffn", "top_k"):
            table.pop(name, None)
    if table.get("experts") and not table.get("moe_latent"):
        table.pop("moe_latent", None)
    if table.get("mtp_layers"):
        assumed.append(f"{table['mtp_layers']} layer(s) that predict further tokens are trained (mtp_layers = 0 leaves them out)")


def _one_module(config: Mapping[str, Any], table: dict[str, Any], layers: int, used: set[str]) -> None:
    """Nemotron-H's own pattern, or the list of types that later versions write."""
    types = config.get("layers_block_type")
    if isinstance(types, list):
        used.add("layers_block_type")
        if unknown := [name for name in types if not isinstance(name, str) or name not in _LETTERS]:
            raise SpecError("layers_block_type", unknown[0], ", ".join(_LETTERS))
        text = "".join(_LETTERS[name] for name in types)
    else:
        used.add("hybrid_override_pattern")
        letters = config.get("hybrid_override_pattern", Nothing())
        if not isinstance(letters, str) or not letters or set(letters) - set(_LETTERS.values()):
            raise SpecError("hybrid_override_pattern", letters, "a letter for each layer: M, *, - or E")
        text = letters
    if len(text) != layers:
        raise SpecError("num_hidden_layers", layers, f"{len(text)}, the length of the pattern")
    table["layer_pattern"] = text
    if "E" not in text:
        for name in ("experts", "expert_ffn", "shared_ffn", "top_k", "router", "balance", "router_groups", "router_top_groups"):
            table.pop(name, None)


def _types(config: Mapping[str, Any], layers: int, used: set[str], linear: str) -> str:
    """A letter for each layer from `layer_types`, or attention every so many layers; `linear` is that of `linear_attention`."""
    names = ("layer_types", "layers_block_type", "full_attention_interval", "attn_type_list")
    used.update(name for name in names if name in config)
    types = config.get("layer_types") or config.get("layers_block_type")
    numbers = config.get("attn_type_list")
    if types is None and isinstance(numbers, list):  # MiniMax: 0 is linear attention
        types = ["linear_attention" if number == 0 else "full_attention" for number in numbers]
    if types is None:
        every = config.get("full_attention_interval", 4)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise SpecError("full_attention_interval", every, "a whole number of 1 or more")
        return pattern([linear if (i + 1) % every else "A" for i in range(layers)])
    if not isinstance(types, list) or len(types) != layers or not all(isinstance(name, str) and name in _MIXERS for name in types):
        raise SpecError("layer_types", types, f"one of {', '.join(_MIXERS)} for each of the {layers} layers")
    letters = _MIXERS | {"linear_attention": linear}
    return pattern([letters[name] for name in types])


def _kimi(config: Mapping[str, Any], table: dict[str, Any], layers: int, used: set[str]) -> None:
    """`linear_attn_config` counts layers from 1; experts stand as in DeepSeek's models, under names of its own."""
    linear = config.get("linear_attn_config")
    if not isinstance(linear, Mapping):
        raise SpecError("linear_attn_config", Nothing() if linear is None else linear, "an object")
    attention = _indices(linear, "full_attn_layers", layers, first=1)
    table["mixer_pattern"] = pattern(["A" if i in attention else "L" for i in range(1, layers + 1)])
    for field, key, usual in (
        ("linear_heads", "num_heads", None),
        ("linear_key_dim", "head_dim", 128),
        ("linear_value_dim", "head_dim", 128),
        ("conv_width", "short_conv_kernel_size", 4),
    ):
        value = linear.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
            raise SpecError(
                f"linear_attn_config.{key}", Nothing() if value is None else value, f"a whole number from 1 to {LARGEST}"
            )
        table[field] = value
    shared, dense = natural(config, "num_shared_experts", 0), natural(config, "first_k_dense_replace", 0)
    table["shared_ffn"] = shared * int(table.get("expert_ffn") or 0)
    table["layer_pattern"] = pattern(["D" if i < dense else "E" for i in range(layers)])
    sigmoid = config.get("moe_router_activation_func", "sigmoid") == "sigmoid"
    table |= {"router": "sigmoid", "balance": "bias"} if sigmoid else {}
    used |= {"linear_attn_config", "num_shared_experts", "first_k_dense_replace", "moe_router_activation_func", "moe_layer_freq"}


def _glm_next(config: Mapping[str, Any], table: dict[str, Any], layers: int, used: set[str]) -> None:
    """GLM-5.3-Flash: Kimi Delta Attention in three of four layers, sparse latent attention in the others, as `layer_types` says."""
    types = config.get("layer_types") or ["attention" if i % 4 == 3 else "linear_attention" for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        raise SpecError("layer_types", types, f"linear_attention or deepseek_sparse_attention for each of the {layers} layers")
    full = [i for i, kind in enumerate(types, 1) if kind != "linear_attention"]
    linear = config.get("linear_attn_config") or {}
    feeds = config.get("mlp_layer_types")
    dense = feeds.count("dense") if isinstance(feeds, list) else natural(config, "first_k_dense_replace", 0)
    plain = {**config, "num_shared_experts": natural(config, "n_shared_experts", 0), "first_k_dense_replace": dense}
    if not isinstance(linear, Mapping):
        raise SpecError("linear_attn_config", linear, "an object")
    _kimi({**plain, "linear_attn_config": {**linear, "full_attn_layers": full}}, table, layers, used)
    used |= {"layer_types", "mlp_layer_types", "n_shared_experts", "indexer_types", "mla_use_nope", "hc_eps", "hc_sinkhorn_iters"}
    used |= {"scoring_func", "topk_method", "qk_head_dim", "swiglu_limit"} & set(config)


_HEAVY = 32
"""From so many tokens an entry on, attention is the heavily compressed one, which sees all entries."""


def _read_compression(config: Mapping[str, Any], table: dict[str, Any], layers: int, used: set[str], assumed: list[str]) -> None:
    """DeepSeek-V4: tokens behind an entry of the cache, layer by layer; those of further layers stand behind them."""
    ratios = config.get("compress_ratios")
    if not isinstance(ratios, list) or len(ratios) < layers or not all(type(ratio) is int and ratio >= 0 for ratio in ratios):
        raise SpecError("compress_ratios", Nothing() if ratios is None else ratios, f"a number for each of the {layers} layers")
    own = ratios[:layers]
    for field, of_kind in (("compress", [r for r in own if 1 < r < _HEAVY]), ("compress_heavy", [r for r in own if r >= _HEAVY])):
        if len(set(of_kind)) > 1:
            raise SpecError("compress_ratios", sorted(set(of_kind)), "one ratio for an indexer's layers and one for the others")
        if of_kind:
            table[field] = of_kind[0]
    if alone := sum(ratio <= 1 for ratio in own):
        assumed.append(f"{alone} layers see the window alone: they count as heavily compressed ones")
    table["mixer_pattern"] = pattern(["C" if 1 < ratio < _HEAVY else "H" for ratio in own])
    table["shared_ffn"] = natural(config, "n_shared_experts", 1) * int(table.get("expert_ffn") or 0)
    read = {"compress_ratios", "compress_rope_theta", "n_shared_experts", "scoring_func", "topk_method", "swiglu_limit"}
    used |= read & set(config)


def _lightning(config: Mapping[str, Any], table: dict[str, Any], used: set[str]) -> None:
    """Linear layers with as many heads, and as wide, as attention's."""
    heads = int(table["heads"])
    width = int(table.get("head_dim") or int(table["hidden"]) // heads)
    table |= {"linear_heads": heads, "linear_key_heads": heads, "linear_key_dim": width, "linear_value_dim": width}
    used.add("block_size")


def _olmo(table: dict[str, Any]) -> None:
    """Heads of linear attention default to attention's, keys to three quarters of the hidden size."""
    heads = int(table.get("linear_heads") or table["heads"])
    keys = int(table.get("linear_key_heads") or heads)
    width = int(table.get("linear_key_dim") or 3 * int(table["hidden"]) // 4 // keys)
    table |= {"linear_heads": heads, "linear_key_heads": keys, "linear_key_dim": width}
    table.setdefault("linear_value_dim", 2 * width)


def _jamba(config: Mapping[str, Any], table: dict[str, Any], layers: int, used: set[str]) -> None:
    """Attention and experts each at a period and an offset; the others are Mamba layers and dense MLPs."""
    names = {"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_expand": 2}
    every, first, every_moe, first_moe, expand = (natural(config, name, usual) for name, usual in names.items())
    used.update(name for name in names if name in config)
    table["mixer_pattern"] = pattern(["A" if i % max(1, every) == first else "M" for i in range(layers)])
    if int(table["experts"]) > 1:
        table["layer_pattern"] = pattern(["E" if i % max(1, every_moe) == first_moe else "D" for i in range(layers)])
    else:
        for name in ("experts", "top_k", "expert_ffn"):
            table.pop(name, None)
    table |= {"ssm_heads": max(1, max(1, expand) * int(table["hidden"]) // 64), "ssm_head_dim": 64}


def _lfm2(config: Mapping[str, Any], table: dict[str, Any], layers: int, used: set[str]) -> None:
    """Which layers are convolutions, and the inner width that the type rounds itself."""
    hidden, types = int(table["hidden"]), config.get("layer_types")
    used |= {"layer_types", "full_attn_idxs", "num_dense_layers", "tie_embedding"} & set(config)
    if isinstance(types, list):
        if len(types) != layers or set(map(str, types)) - {"conv", "full_attention"}:
            raise SpecError("layer_types", types, f"conv or full_attention for each of the {layers} layers")
        attention = frozenset(i for i, kind in enumerate(types) if kind == "full_attention")
    else:
        listed = "full_attn_idxs" in config
        attention = _indices(config, "full_attn_idxs", layers, first=0) if listed else frozenset(range(layers))
    table["mixer_pattern"] = pattern(["A" if i in attention else "S" for i in range(layers)])
    table.setdefault("conv_width", 3)
    if table.get("experts"):
        dense = natural(config, "num_dense_layers", 2)
        table["layer_pattern"] = pattern(["D" if i < dense else "E" for i in range(layers)])
    elif config.get("block_auto_adjust_ff_dim", True):
        factor, multiple = config.get("block_ffn_dim_multiplier", 1.0), max(1, natural(config, "block_multiple_of", 256))
        used |= {"block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of"} & set(config)
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor < 1e3:
            raise SpecError("block_ffn_dim_multiplier", factor, "a number above 0")
        width = int(factor * int(2 * int(table.get("ffn") or 4 * hidden) / 3))
        table["ffn"] = -(-width // multiple) * multiple


def _indices(config: Mapping[str, Any], key: str, layers: int, first: int) -> frozenset[int]:
    listed = config.get(key) or []
    if not isinstance(listed, list) or not all(isinstance(i, int) and first <= i < layers + first for i in listed):
        raise SpecError(key, listed, f"a list of layer numbers from {first} to {layers + first - 1}")
    return frozenset(listed)
