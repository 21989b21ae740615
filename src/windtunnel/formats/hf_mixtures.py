"""Hugging Face keys of MoE models and of models with several kinds of layers: patterns of layers, shared experts, routing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from windtunnel.base.errors import Nothing, SpecError

LOCAL = ("sliding_attention", "chunked_attention")
LARGEST = 10**9
"""No size of a network in use is larger."""


def mixed(kind: str, config: Mapping[str, Any], table: dict[str, Any], used: set[str], assumed: list[str]) -> None:
    """Fills `table` with patterns of layers, shared experts and routing, and notes which keys were read."""
    layers = int(table["layers"])
    dense = _dense(config, layers, used)
    if dense is not None and any(dense):
        table["layer_pattern"] = pattern(["D" if d else "E" for d in dense])
    used.update(key for key in ("use_sliding_window", "max_window_layers") if key in config)
    if table.get("window"):
        _windows(kind, config, table, layers, used, assumed)
    if "n_shared_experts" in config:
        used.add("n_shared_experts")
        table["shared_ffn"] = natural(config, "n_shared_experts", 0) * int(table.get("expert_ffn") or 0)
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
    names = ("first_k_dense_replace", "moe_layer_freq", "decoder_sparse_step", "mlp_only_layers", "interleave_moe_layer_step")
    if not any(config.get(name) is not None for name in names):
        return None
    used.update(name for name in names if name in config)
    first, every = natural(config, "first_k_dense_replace", 0), max(1, natural(config, "moe_layer_freq", 1))
    step = max(1, natural(config, "decoder_sparse_step", 1), natural(config, "interleave_moe_layer_step", 1))
    only = config.get("mlp_only_layers") or []
    if not isinstance(only, list) or not all(isinstance(layer, int) for layer in only):
        raise SpecError("mlp_only_layers", only, "a list of layer numbers")
    dense = frozenset(only)
    return [i < first or i % every != 0 or (i + 1) % step != 0 or i in dense for i in range(layers)]


def _windows(kind: str, config: Mapping[str, Any], table: dict[str, Any], layers: int, used: set[str], assumed: list[str]) -> None:
    """Which layers have the window: a list of layer types, a period, or what the type always does."""
    names = ("layer_types", "sliding_window_pattern", "_sliding_window_pattern", "no_rope_layers")
    used.update(name for name in names if name in config)
    types = config.get("layer_types")
    if kind == "qwen3_moe" and not config.get("use_sliding_window", False):
        table.pop("window")
    elif isinstance(types, list):
        if len(types) != layers:
            raise SpecError("layer_types", f"{len(types)} entries", f"one for each of the {layers} layers")
        table["window_pattern"] = pattern(["L" if name in LOCAL else "G" for name in types])
    elif kind in ("gemma3_text", "gpt_oss", "llama4_text"):
        usual = {"gemma3_text": 6, "gpt_oss": 2, "llama4_text": 4}[kind]
        period = natural(config, "sliding_window_pattern", natural(config, "_sliding_window_pattern", usual))
        table["window_pattern"] = pattern(["L" if (i + 1) % max(1, period) else "G" for i in range(layers)])
        assumed.append(f"every {period}th layer sees all tokens, the others a window of {table['window']}")
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
