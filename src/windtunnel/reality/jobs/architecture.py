"""The network of a row, from its dimensions and its `arch` column.

A table prints dimensions; norm, activation and position embedding follow from the architecture's name, as
`catalog/publications/architectures.toml` has them with their sources.

The network of a row with experts or latent attention: tables print some of its dimensions, the released model has all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import nearest
from windtunnel.reality.jobs.software import dates_of
from windtunnel.reality.rows import publications
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import load_model, names
from windtunnel.spec.model import Lora, Model

DEFAULT_VOCAB = 51200
"""GPT-2's 50,257 tokens padded as Megatron pads them for 8-way tensor parallelism."""

_SHORT = 3
"""Letters of a first word that may be an architecture's ("gpt", "mpt"), not a family's."""

_MOST_HEADS = 4096
_SIZE_TOLERANCE = 0.03
"""Tolerance between a printed parameter count and the counted one: rounding, and sizes counted before the vocabulary was padded."""


def model_of(row: TrainingRow, software: tuple[int, int] | None, assumed: list[str]) -> Model | Skipped:
    """The row's network; assumptions are appended to `assumed`. `software`: (year, month) of the framework."""
    architectures = publications.architectures()
    arch = row.arch or _first_word(row.model, architectures)
    if arch == "moe" or row.experts or row.attention not in (None, "mha"):
        released = released_of(row, assumed) if row.layers is row.hidden is None else None
        return released or mixture_of(row, assumed)
    named = row.layers is row.hidden is None or (row.arch is None and row.ffn is None)
    if (arch not in architectures or named) and (released := released_of(row, assumed)) is not None:
        return released
    if arch not in architectures:
        if not row.model:
            return Skipped(f"architecture {arch or 'not published'!r} without a model's name")
        near = nearest(row.model, names("models"))
        hint = f" (the nearest is {near})" if near else ""
        return Skipped(f"the layers of {row.model!r} are not in the row, and the catalogue has no model of that name{hint}")
    layers, hidden, ffn, seq = row.layers or _usual_layers(row), row.hidden, row.ffn, row.seq
    if not ffn and hidden and architectures[arch].get("activation") == "gelu":
        ffn = 4 * hidden
        assumed.append(f"MLP of {ffn} (not published: four times the width)")
    heads = row.heads if row.heads is not None else _usual_heads(hidden or 0, row.tp or 1)
    if not (layers and hidden and heads and ffn and seq):
        blank = [name for name in ("layers", "hidden", "ffn", "seq") if not getattr(row, name)] or ["heads"]
        return Skipped(f"{', '.join(blank)} not published")
    facts = dict(architectures[arch])
    if row.layers is None:
        assumed.append(f"{layers} layers (not published: the multiple of pp = {row.pp} nearest to {row.params_b:g}e9 parameters)")
    if row.heads is None:
        assumed.append(f"{heads} heads of {hidden // heads} (not published: the width nearest to 128 that the plan can cut)")
    vocab = row.vocab or _usual_vocab(row, assumed)
    if row.kv_heads is None:
        assumed.append("as many key/value heads as heads (not published)")
    facts |= _published_fields(row, software, seq, assumed)
    return Model(
        name=row.model or f"{arch}-{hidden}x{layers}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=row.kv_heads,
        ffn=ffn,
        vocab=vocab,
        max_seq=seq,
        source=row.source or "",
        **facts,
    )


def _first_word(model: str | None, known: Mapping[str, Any]) -> str:
    """The architecture that a model's name begins with ("GPT-345M"), or ""."""
    first = re.split(r"[^a-z]", (model or "").lower())[0]
    return first if first in known else ""


def _usual_vocab(row: TrainingRow, assumed: list[str]) -> int:
    """The vocabulary of the catalogue's model that the row's name contains, or that all models of its family share, else GPT-2's,
    padded."""
    name = re.sub(r"[^a-z0-9.]+", "-", (row.model or "").lower())
    contained = max((entry for entry in names("models") if len(entry) > _SHORT and entry in name), key=len, default=None)
    first = re.split(r"[^a-z]", name)[0]
    family = [entry for entry in names("models") if re.split(r"[^a-z]", entry)[0] == first] if len(first) > _SHORT else []
    known = [contained] if contained else family
    sizes = {load_model(entry).vocab for entry in known}
    if len(sizes) == 1:
        assumed.append(f"vocabulary {min(sizes)} (not published: that of {known[0]})")
        return min(sizes)
    assumed.append(f"vocabulary {DEFAULT_VOCAB} (not published)")
    return DEFAULT_VOCAB


def _usual_heads(hidden: int, tp: int) -> int:
    """Heads whose width is nearest to 128, the usual one, of those that divide `hidden` and that `tp` divides; else 0."""
    candidates = [heads for heads in range(tp, min(hidden, _MOST_HEADS) + 1, tp) if hidden % heads == 0]
    return min(candidates, key=lambda heads: (abs(hidden / heads - 128.0), heads), default=0)


def _usual_layers(row: TrainingRow) -> int | None:
    """Layers that divide evenly over the stages and are nearest to the printed size, if that is within 3 %; else None.

    Counts 12 h^2 + 13 h for a layer and V h for the embedding (Narayanan et al. 2021, arXiv:2104.04473, equation 2).
    """
    hidden, pp, size = row.hidden or 0, row.pp or 0, 1e9 * (row.params_b or 0.0)
    if not (hidden and pp and size) or row.ffn != 4 * hidden:
        return None
    layer, rest = 12.0 * hidden**2 + 13.0 * hidden, float((row.vocab or DEFAULT_VOCAB) * hidden)
    layers = max(1, round((size - rest) / layer / pp)) * pp
    return layers if abs(layers * layer + rest - size) <= _SIZE_TOLERANCE * size else None


def _published_fields(row: TrainingRow, software: tuple[int, int] | None, seq: int, assumed: list[str]) -> dict[str, Any]:
    """Fields of the model that the row's publication states: switches of the network, window, adapters."""
    fields: dict[str, Any] = {}
    cuts_sequence = (row.tp or 1) > 1 and row.seq_parallel != "n"
    for fact in publications.facts_for(publications.columns_of(row) | dates_of(row, software)):
        fields |= fact.model
        if fact.window_of_seq is not None:
            fields["window"] = max(1, int(seq * fact.window_of_seq))
        if fact.lora is not None:
            adapters = fact.lora.model_dump(exclude={"all_to_all_of"}, exclude_defaults=True)
            fields["lora"] = Lora(**adapters, all_to_all=row.framework in fact.lora.all_to_all_of and cuts_sequence)
        if fact.assumed and (fact.model or fact.window_of_seq is not None or fact.lora is not None):
            assumed.append(fact.assumed)
    return fields


_VERSION = re.compile(r"\bv(\d)")
"""Tables write "Nemotron V3 Nano 30B" for nemotron-3-nano-30b-a3b."""

_LATENT: dict[str, Any] = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_dim": 128, "qk_rope_dim": 64, "v_dim": 128}
"""Widths of latent attention that DeepSeek-V2, V3 and Kimi K2 share."""


def mixture_of(row: TrainingRow, assumed: list[str]) -> Model | Skipped:
    """The released model with the row's name if all printed dimensions agree with it, else the printed dimensions."""
    name = (row.model or "").lower()
    if name in names("models"):
        model = load_model(name)
        if not (differs := _differing(row, model)):
            assumed.append(f"dimensions that the row does not print: the released {name}")
            return _without_mtp(row, model)
        assumed.append(f"not the released {name}: {', '.join(differs)} differ")
    return _printed_model(row, assumed)


def released_of(row: TrainingRow, assumed: list[str]) -> Model | None:
    """The released model that the row names, with or without its size ("Nemotron_3_Nano"), if printed dimensions agree; else
    None."""
    name = (row.model or "").lower().replace("_", "-").replace(" ", "-")
    matches = [entry for entry in names("models") if entry == name or entry.startswith(f"{name}-")] if name else []
    if not matches and len(words := set(_VERSION.sub(r"\1", name).split("-"))) > 2:
        matches = [entry for entry in names("models") if words <= set(entry.split("-"))]
    if len(matches) != 1 or _differing(row, model := load_model(matches[0])):
        return None
    assumed.append(f"dimensions that the row does not print: the released {matches[0]}")
    lora = _published_fields(row, None, row.seq or model.max_seq, assumed).get("lora")
    return _without_mtp(row, model if lora is None else model.model_copy(update={"lora": lora}))


def _differing(row: TrainingRow, model: Model) -> list[str]:
    """Columns whose figure differs from the model's."""
    pairs = (
        ("layers", row.layers, model.layers),
        ("hidden", row.hidden, model.hidden),
        ("heads", row.heads, model.heads),
        ("experts", row.experts, model.experts),
        ("topk", row.topk, model.top_k),
        ("moe_ffn", row.moe_ffn, model.expert_width),
    )
    differing = [column for column, printed, released in pairs if printed is not None and printed != released]
    kinds = ((row.arch == "moe", model.experts is not None, "arch"), (row.attention == "mla", model.latent, "attention"))
    return differing + [column for stated, released, column in kinds if stated and not released]


def _without_mtp(row: TrainingRow, model: Model) -> Model:
    """Notes say where a run left out the prediction of further tokens."""
    return model.model_copy(update={"mtp_layers": 0}) if "w/o mtp" in (row.notes or "").lower() else model


def _printed_model(row: TrainingRow, assumed: list[str]) -> Model | Skipped:
    mixture = ("experts", "topk", "moe_ffn") if row.experts or row.arch == "moe" else ()
    needs = ("layers", "hidden", "heads", "ffn", "seq", *mixture)
    if blank := [column for column in needs if not getattr(row, column)]:
        return Skipped(f"{', '.join(blank)} not published")
    fields: dict[str, Any] = {
        "activation": "swiglu",
        "norm": "rmsnorm",
        "position": "rope",
        "linear_bias": False,
        "tied_embeddings": False,
    }
    assumed.append("gated MLP, RMS norm and rotary positions (not published)")
    if row.attention == "mla":
        fields |= _LATENT
        assumed.append("widths of latent attention as in DeepSeek-V3 (not published)")
    elif row.kv_heads:
        fields["kv_heads"] = row.kv_heads
    if row.experts:
        dense = row.dense_layers or 0
        pattern = f"D{dense}E{max(0, (row.layers or 0) - dense)}" if dense else "E"
        fields |= {
            "experts": row.experts,
            "top_k": row.topk,
            "expert_ffn": row.moe_ffn,
            "layer_pattern": pattern,
            "shared_ffn": (row.shared_experts or 0) * (row.moe_ffn or 0),
        }
    return load_model(
        {
            "name": row.model or "mixture",
            "layers": row.layers,
            "hidden": row.hidden,
            "heads": row.heads,
            "ffn": row.ffn,
            "vocab": row.vocab or _usual_vocab(row, assumed),
            "max_seq": row.seq,
            "source": row.source or "",
            **fields,
        }
    )
