"""Hugging Face `config.json` to a Model: dense decoders, mixtures of experts and hybrids; the types are listed in `families.toml`.

Keys of a config.json that change a network's numbers and no second. A value of another kind than usual is left unread.

Hugging Face `vision_config` beside a `text_config`: the encoder in front of the decoder, of the types that are known.

Keys and what is in code and in no key as in transformers (`configuration_<type>.py`, `modeling_<type>.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from windtunnel.base.errors import Nothing, SpecError, UnknownName, nearest
from windtunnel.formats.jobs.huggingface import rewrites
from windtunnel.formats.jobs.huggingface.families import (
    ACTIVATIONS,
    COMMON_KEYS,
    EXPERT_KEYS,
    FAMILIES,
    NOT_DECODERS,
    OF_CONFIG,
    UNKNOWN,
    UNKNOWN_WITH_LAYERNORM,
    Family,
)
from windtunnel.formats.jobs.huggingface.hybrids import LARGEST, fill_mixture, hybrid, natural
from windtunnel.formats.jobs.huggingface.quantised import KEYS as QUANTISED
from windtunnel.formats.jobs.huggingface.quantised import read_checkpoint
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.spec import Job, check, load_model
from windtunnel.spec.common import LARGEST_LAYERS
from windtunnel.spec.loading.explain import explain
from windtunnel.spec.model import Vision

_NAMES = {
    "layers": ("num_hidden_layers", "depth"),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads", "num_heads"),
    "ffn": ("intermediate_size",),
    "image": ("image_size",),
    "patch": ("patch_size",),
}

VISION: dict[str, dict[str, Any]] = {
    "llava": {"class_token": True, "pre_norm": True, "post_norm": False},
    "gemma3": {"merge_by": "pool", "projector_bias": False, "patch_bias": True},
    "llama4": {"merge": 2, "projector_bias": False, "class_token": True, "pre_norm": True},
    "qwen2_5_vl": {"frames": 2, "activation": "swiglu", "norm": "rmsnorm", "position": "rope", "image": 1008},
}
"""Outer `model_type` -> what its code fixes."""


def vision_of(config: Mapping[str, Any], hidden: int, assumed: list[str]) -> dict[str, Any] | None:
    """Fields of `model.vision` from the whole config.json, whose decoder is `hidden` wide; None for a type that is not known.

    Raises SpecError for a missing or wrong key.
    """
    kind, inner = config.get("model_type"), config.get("vision_config")
    if not isinstance(kind, str) or kind not in VISION or not isinstance(inner, Mapping):
        return None
    table = dict(VISION[kind])
    for field, names in _NAMES.items():
        value = next((inner[name] for name in names if inner.get(name) is not None), table.get(field))
        table[field] = _positive(f"vision_config.{names[0]}", value)
    side = table["image"] // table["patch"]
    if kind == "llava":
        layer = config.get("vision_feature_layer", -2)
        left_out = -1 - layer if isinstance(layer, int) and not isinstance(layer, bool) and layer < 0 else 0
        if left_out >= table["layers"]:
            raise SpecError(
                "vision_feature_layer", layer, f"one of the encoder's {table['layers']} layers, counted from -1, the last"
            )
        table |= {"layers": table["layers"] - left_out, "projector": (hidden,)}
        assumed.append(f"the encoder's last {left_out} layer(s) do not run (vision_feature_layer)")
    elif kind == "gemma3":
        tokens = _positive("mm_tokens_per_image", config.get("mm_tokens_per_image", 256))
        table["merge"] = max(1, round(side / tokens**0.5))
    elif kind == "llama4":
        table["projector"] = (_positive("vision_config.projector_input_dim", inner.get("projector_input_dim", 4096)),) * 2
    else:
        merge = _positive("vision_config.spatial_merge_size", inner.get("spatial_merge_size", 2))
        window = _positive("vision_config.window_size", inner.get("window_size", 112)) // table["patch"]
        full = inner.get("fullatt_block_indexes") or []
        table |= {"merge": merge, "projector": (table["hidden"] * merge**2,), "window": window**2}
        table["global_every"] = max(1, table["layers"] // len(full)) if isinstance(full, list) and full else 1
        assumed.append("images of 1008 pixels a side: the type takes any size")
    assumed.append("one image in each sequence, whose tokens are part of plan.seq; the encoder is trained (model.vision.frozen)")
    return table


def _positive(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise SpecError(key, Nothing() if value is None else value, f"a whole number from 1 to {LARGEST}")
    return value


FORMAT = "huggingface"
KEYS = frozenset({"model_type", "architectures", "transformers_version", "hidden_size", "n_embd", "num_hidden_layers"})
"""Keys of a config.json, of which each has at least one."""

TEXT: dict[str, str] = OF_CONFIG["text"]
"""Decoders that multimodal types name after themselves."""
_FLAT = ("qwen2_vl", "qwen2_5_vl", "phi3_v")
"""Multimodal types whose older files keep the decoder's keys at the top."""

_INTEGERS: list[str] = OF_CONFIG["whole_numbers"]
_OF_EXPERTS: list[str] = OF_CONFIG["of_experts"]
_SWITCHES = ("tied_embeddings", "qkv_bias", "linear_bias", "parallel_block", "qk_norm", "global_shared_kv")
_REQUIRED = ("layers", "hidden", "heads", "vocab")
_LAYERNORM = ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon")
"""Keys of LayerNorm's constant."""
_RECURRENT: tuple[str, ...] = tuple(OF_CONFIG["recurrent"])
"""How keys begin that a decoder of attention alone does not have."""


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table has keys of a config.json of Hugging Face."""
    return bool(KEYS & set(table))


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """As `from_config`; with `on`, also a job with that job's plan, runtime and cluster."""
    imported = from_config(table, stated=stated)
    if on is None:
        return imported
    nouns: dict[str, Any] = {"plan": on.plan, "runtime": on.runtime, "cluster": on.cluster, "tokens": on.tokens, "seed": on.seed}
    job = check(Job(name=imported.model.name, model=imported.model, source=imported.model.source, **nouns))
    return replace(imported, plan=job.plan, runtime=job.runtime, job=job)


def from_config(config: Mapping[str, Any], name: str = "", stated: Stated | None = None) -> Imported:
    """The model that `config` (the parsed config.json) describes; what the user has `stated` of it beats the file.

    A `model_type` that is not known is read as a decoder like Llama's, or as a mixture, where the file has the usual keys.
    Raises `SpecError` for a missing or wrong key and for networks that are known but not modelled.
    """
    used: set[str] = {"model_type"}
    inner = _inner(config)
    if inner is not None:
        return _multimodal(config, inner, name, stated)
    assumed: list[str] = []
    kind, family = _family(config, stated or Stated(), assumed)
    given = config
    if family.rewrite is not None:
        config, read = getattr(rewrites, family.rewrite)(config)
        used |= read & set(given)
    table: dict[str, Any] = dict(family.fixed)
    if "position" not in table:
        table["position"] = config.get("position")
    table |= _read(config, family, stated or Stated(), used, assumed)
    ignored = [key for key in given if key not in used]
    ignored += _special(kind, family, config, table, used, assumed)
    _activation(config, family, table)
    table.setdefault("ffn", table.get("expert_ffn") or 4 * table["hidden"])
    if not _present(config, family, "ffn") and kind not in ("mpt", "llama4_text"):
        assumed.append(f"ffn {table['ffn']}: " + ("an expert's width" if table.get("expert_ffn") else "four times the hidden size"))
    assumed += family.notes
    if numerics := read_numerics(given, used):
        table["numerics"] = numerics
    checkpoint = read_checkpoint(given, table["layers"], used, assumed)
    if checkpoint is not None:
        table["checkpoint"] = checkpoint.model_dump(exclude_none=True)
    table["name"] = name or str(config.get("_name_or_path") or f"{kind}-{table['hidden']}x{table['layers']}")
    table["source"] = f"Hugging Face config.json, model_type {kind}"
    model = load_model({key: value for key, value in table.items() if value is not None})
    built = tuple(sorted(key for key in table if key not in ("name", "source")))
    left = tuple(sorted(key for key in ignored if key not in used))
    return Imported(FORMAT, model, built=built, ignored=left, assumed=tuple(assumed))


def _inner(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The decoder's table of a multimodal configuration."""
    kind = config.get("model_type")
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            named = inner.get("model_type") or TEXT.get(str(kind))
            return {**inner, "model_type": named} if isinstance(named, str) else None
    if kind in _FLAT and isinstance(config.get("vision_config"), Mapping):
        return {key: value for key, value in config.items() if key != "vision_config"}
    return None


def _multimodal(config: Mapping[str, Any], inner: Mapping[str, Any], name: str, stated: Stated | None) -> Imported:
    """The decoder of `inner`, with the encoder of images where its type is known."""
    packed = {key: config[key] for key in QUANTISED if key in config}
    decoder = from_config(
        {**packed, **inner, "model_type": TEXT.get(str(inner["model_type"]), inner["model_type"])},
        name or str(config.get("model_type", "")),
        stated,
    )
    assumed: list[str] = []
    vision = vision_of(config, decoder.model.hidden, assumed)
    left = {key for key in config if key != "text_config"} if config.get("text_config") is not None else set()
    left -= set(packed) if decoder.model.checkpoint is not None else set()
    left |= {f"text_config.{key}" if config.get("text_config") is not None else key for key in decoder.ignored}
    if vision is None:
        return Imported(
            FORMAT,
            decoder.model,
            built=decoder.built,
            ignored=tuple(sorted(left)),
            assumed=("the language model alone (text_config)", *decoder.assumed),
        )
    try:
        encoder = Vision(**vision)
    except ValidationError as error:
        raise explain(error, Vision, "vision_config") from None
    model = decoder.model.model_copy(update={"vision": encoder})
    return Imported(
        FORMAT,
        model,
        built=tuple(sorted((*decoder.built, "vision"))),
        ignored=tuple(sorted(left - {"model_type", "vision_config"})),
        assumed=(*decoder.assumed, *assumed),
    )


def _by_architecture(config: Mapping[str, Any]) -> str | None:
    """The known type whose class a file names, as repacked checkpoints do (DeepseekV4ForCausalLM), where reading a file as a
    usual decoder would be wrong; None for others."""
    listed = config.get("architectures")
    names = (
        [re.sub(r"For[A-Z]\w+$", "", name).lower() for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    )
    unusual = (kind for kind, family in FAMILIES.items() if family.hybrid or family.rewrite is not None)
    return next((kind for kind in unusual if kind.replace("_", "") in names), None)


def _family(config: Mapping[str, Any], stated: Stated, assumed: list[str]) -> tuple[str, Family]:
    """The type and what is known of it; a type that is not known is `UNKNOWN`, where the file has the usual keys."""
    kind = config.get("model_type")
    kind = TEXT.get(kind, kind) if isinstance(kind, str) else kind
    if kind is None and all(_lacks(config, stated, field) for field in _REQUIRED):
        keys = ", ".join(map(str, list(config)[:6])) or "none"
        raise SpecError(
            "FILE", f"a table with the keys {keys}", "a kind of file that is known, such as a model's config.json with model_type",
            "`windtunnel catalog formats` lists what is read.",
        )  # fmt: skip
    if not isinstance(kind, str):
        raise SpecError(
            "model_type",
            Nothing() if kind is None else kind,
            "a name, such as llama, qwen3 or deepseek_v3; docs/formats.md lists those that are known",
            "Is this a config.json of a Hugging Face model?",
        )
    if kind in NOT_DECODERS:
        raise SpecError("model_type", kind, "a decoder that is modelled", f"Not modelled: {NOT_DECODERS[kind]}.")
    if kind not in FAMILIES and (named := _by_architecture(config)) is not None:
        assumed.append(f"model_type {kind} is taken for {named}, by its architecture")
        kind = named
    if kind in FAMILIES:
        family = FAMILIES[kind]
        moe = [key for key in EXPERT_KEYS if _is_set(config.get(key))] if not _mixture(family) else []
        if moe:
            what = f"{kind} ({', '.join(moe)})"
            raise SpecError("model_type", what, "a type with experts or latent attention", f"{kind} is read as a dense decoder.")
        return kind, family
    strange = [key for key in config if key.startswith(_RECURRENT) and _is_set(config[key])]
    if strange:
        raise SpecError(
            "model_type", kind, "a type that is known", f"{', '.join(sorted(strange)[:4])} of this one are not understood."
        )
    missing = [key for field in _REQUIRED for key in (_spellings(UNKNOWN, field)[0],) if _lacks(config, stated, field)]
    if len(missing) == len(_REQUIRED):
        raise UnknownName("model_type", kind, sorted(FAMILIES))
    experts = [key for key in EXPERT_KEYS if _is_set(config.get(key))]
    near = nearest(kind, sorted(FAMILIES))
    family, like = (UNKNOWN, "Llama's (RMS norm, rotary embedding)") if experts else _like(config)
    assumed.append(
        f"model_type {kind} is not known: taken for "
        + (f"a mixture of experts ({', '.join(experts)})" if experts else f"a decoder like {like}")
        + (f"; did you mean {near}?" if near else "")
        + " --set model.FIELD=VALUE corrects a field"
    )
    return kind, family


def _like(config: Mapping[str, Any]) -> tuple[Family, str]:
    """What a dense type that is not known is taken for, by its norm's constant; and in words."""
    if not any(config.get(key) is not None for key in _LAYERNORM) or any("rms" in key for key in config):
        return UNKNOWN, "Llama's (RMS norm, rotary embedding)"
    rope = any(key.startswith(("rope", "rotary")) and config[key] is not None for key in config)
    family = replace(UNKNOWN_WITH_LAYERNORM, fixed={**UNKNOWN_WITH_LAYERNORM.fixed, "position": "rope" if rope else "learned"})
    return family, f"{'GPT-NeoX' if rope else 'GPT-2'}'s (LayerNorm, {'rotary' if rope else 'learned'} positions, MLP without gate)"


def _mixture(family: Family) -> bool:
    """Whether a type may have experts, latent attention or layers of several kinds."""
    return family.hybrid or "experts" in family.keys or "kv_lora_rank" in family.keys


def _lacks(config: Mapping[str, Any], stated: Stated, field: str) -> bool:
    return stated.whole_number(f"model.{field}") is None and _present(config, UNKNOWN, field) is None


def _is_set(value: object) -> bool:
    return value not in (None, 0, 1, False) and value != {}


def _read(config: Mapping[str, Any], family: Family, stated: Stated, used: set[str], assumed: list[str]) -> dict[str, Any]:
    """Every field that a key of `config` or a default of the type gives."""
    table: dict[str, Any] = {}
    for field in (*COMMON_KEYS, *(extra for extra in family.keys if extra not in COMMON_KEYS)):
        if field in family.fixed:
            continue
        key = _present(config, family, field)
        if (typed := stated.whole_number(f"model.{field}")) is not None:
            table[field] = typed
            used.update(name for name in _spellings(family, field) if name in config)
            continue
        if key is not None and field == "window" and config[key] in (0, -1, False):  # no window
            used.add(key)
            continue
        if key is not None:
            used.add(key)
            table[field] = _check_value(key, field, config[key])
            continue
        for name in _spellings(family, field):
            if name in config:  # written as null
                used.add(name)
        if field == "head_dim" and "head_dim" in config:  # written as null: what the hidden size gives
            continue
        if field in family.defaults:
            table[field] = family.defaults[field]
            assumed.append(f"{field} {family.defaults[field]}: the type's default")
        elif field in _REQUIRED:
            spelled = _spellings(family, field)
            also = [f"model.{one}" for one in _REQUIRED if one not in table and _lacks(config, stated, one)]
            known = ", ".join(sorted(used - {"model_type"})) or "none"
            raise SpecError(
                spelled[0],
                Nothing(),
                f"the key {' or '.join(spelled)} in config.json",
                f"Or state it: {' '.join(f'--set {one}=N' for one in also or [f'model.{field}'])}. Keys understood: {known}.",
            )
        elif field == "kv_heads":
            assumed.append("kv_heads: as many as heads")
        elif field == "max_seq":
            assumed.append("max_seq 2048")
    return table


def _spellings(family: Family, field: str) -> tuple[str, ...]:
    return family.keys.get(field) or COMMON_KEYS.get(field, ())


def _present(config: Mapping[str, Any], family: Family, field: str) -> str | None:
    return next((name for name in _spellings(family, field) if config.get(name) is not None), None)


def _check_value(key: str, field: str, value: object) -> object:
    largest = LARGEST_LAYERS if field == "layers" else LARGEST
    least = 0 if field == "qk_rope_dim" else 1
    if field in _INTEGERS and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= largest):
        raise SpecError(key, value, f"a whole number from {least} to {largest}")
    if field in _SWITCHES and not isinstance(value, bool):
        raise SpecError(key, value, "true or false")
    return value


def _activation(config: Mapping[str, Any], family: Family, table: dict[str, Any]) -> None:
    name = table["activation"]
    plain = ACTIVATIONS.get(name) if isinstance(name, str) else None
    if plain is None:
        raise SpecError(str(_present(config, family, "activation")), name, ", ".join(sorted(ACTIVATIONS)))
    if family is UNKNOWN and plain in ("relu", "squared_relu"):
        table["activation"] = plain
    elif family.gated:
        gated = {"silu": "swiglu", "gelu": "geglu"}
        if plain not in gated:
            raise SpecError("hidden_act", name, "silu or gelu for a gated MLP")
        table["activation"] = gated[plain]
    elif plain == "silu":
        raise SpecError("hidden_act", name, "gelu, relu or relu2 for an MLP without gate")
    else:
        table["activation"] = plain


def _special(
    kind: str, family: Family, config: Mapping[str, Any], table: dict[str, Any], used: set[str], assumed: list[str]
) -> list[str]:
    """What one type says in its own way; returns the keys below the top that it left out."""
    ignored: list[str] = []
    if family.hybrid:
        hybrid(kind, config, table, used, assumed)
    else:
        fill_mixture(kind, family, config, table, used, assumed)
    if not table.get("experts") and not family.hybrid:
        for name in _OF_EXPERTS:
            table.pop(name, None)
    if "shared" in (config.get("indexer_types") or ()) or natural(config, "index_topk_freq", 1) > 1:
        assumed.append("an indexer in each layer: the model shares the keys that one picks among several")
    if kind == "mpt":
        ignored = _mpt(config, table, used, assumed)
    drop = [key for key in ("resid_pdrop", "hidden_dropout", "dropout", "attention_dropout") if key in config]
    used.update(drop)
    rates = [config[key] for key in drop]
    table["dropout"] = any(isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0 for rate in rates)
    if kind == "opt" and config.get("word_embed_proj_dim") not in (None, table["hidden"]):
        assumed.append("the projection between embedding and hidden size is left out (word_embed_proj_dim)")
    return ignored


def _mpt(config: Mapping[str, Any], table: dict[str, Any], used: set[str], assumed: list[str]) -> list[str]:
    ratio = config.get("expansion_ratio", 4)
    if isinstance(ratio, bool) or not isinstance(ratio, int) or not 1 <= ratio <= LARGEST:
        raise SpecError("expansion_ratio", ratio, f"a whole number from 1 to {LARGEST}")
    table["ffn"] = ratio * table["hidden"]
    no_bias = config.get("no_bias", True)
    if not isinstance(no_bias, bool):
        raise SpecError("no_bias", no_bias, "true or false")
    table["linear_bias"] = not no_bias
    attention = config.get("attn_config") or {}
    if not isinstance(attention, Mapping):
        raise SpecError("attn_config", attention, "an object")
    alibi = attention.get("alibi", False)
    table["position"] = "alibi" if alibi else "rope" if attention.get("rope") else "learned"
    if attention.get("kv_n_heads") is not None:
        table["kv_heads"] = _check_value("attn_config.kv_n_heads", "kv_heads", attention["kv_n_heads"])
    used.update(key for key in ("expansion_ratio", "no_bias", "attn_config") if key in config)
    for key, value in (("expansion_ratio", ratio), ("no_bias", no_bias)):
        if key not in config:
            assumed.append(f"{key} {value}: the type's default")
    return [f"attn_config.{key}" for key in attention if key not in ("alibi", "rope", "kv_n_heads")]


_KEYS = {
    "rope_base": ("rope_theta", "rotary_emb_base", "rope_base"),
    "rope_fraction": ("partial_rotary_factor", "rotary_pct", "rope_pct"),
    "norm_eps": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon", "norm_eps"),
    "init_std": ("initializer_range", "init_std"),
    "router_scale": ("routed_scaling_factor", "moe_router_topk_scaling_factor"),
    "aux_loss": ("router_aux_loss_coef", "aux_loss_alpha"),
    "z_loss": ("router_z_loss_coef",),
}
"""Spellings of a number, by the field of `Numerics`."""
_ROPE = ("rope_parameters", "rope_scaling", "attn_config")
"""Tables of the rotary embedding: today's, that of releases before 5.0, which holds the scaling alone, and DBRX's."""
_SCALINGS = ("linear", "dynamic", "yarn", "llama3", "longrope", "mrope")


def read_numerics(config: Mapping[str, Any], used: set[str]) -> dict[str, Any]:
    """The fields of `Numerics` that `config` states; the keys that were understood join `used`."""
    found: dict[str, Any] = {}
    for field, keys in _KEYS.items():
        for key in keys:
            least = 0.0 if field in ("aux_loss", "z_loss") else 1e-30
            if _is_number(config.get(key)) and least <= config[key] <= (1.0 if field == "rope_fraction" else 1e30):
                found.setdefault(field, float(config[key]))
                used.add(key)
    if isinstance(config.get("norm_topk_prob"), bool):
        found["router_normalised"] = config["norm_topk_prob"]
        used.add("norm_topk_prob")
    for name in _ROPE:
        if isinstance(table := config.get(name), Mapping) and not any(isinstance(value, Mapping) for value in table.values()):
            _read_rope(table, found)
            used.add(name)
        elif name in config and config[name] is None:
            used.add(name)
    return found


def _read_rope(table: Mapping[str, Any], found: dict[str, Any]) -> None:
    if _is_number(table.get("rope_theta")) and 1e-30 <= table["rope_theta"] <= 1e30:
        found.setdefault("rope_base", float(table["rope_theta"]))
    if _is_number(table.get("partial_rotary_factor")) and 0.0 < table["partial_rotary_factor"] <= 1.0:
        found.setdefault("rope_fraction", float(table["partial_rotary_factor"]))
    kind = table.get("rope_type") or table.get("type")
    if kind in _SCALINGS:
        found["rope_scaling"] = kind
        if _is_number(table.get("factor")) and 1e-30 <= table["factor"] <= 1e30:
            found["rope_scaling_factor"] = float(table["factor"])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
