"""Hugging Face keys of MoE models and of models with several kinds of layers: patterns of layers, shared experts, routing."""

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
