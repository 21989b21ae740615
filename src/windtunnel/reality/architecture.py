"""Which network a row trained: from its dimensions and its `arch` column.

A table prints dimensions; the kind of norm, activation and position embedding follows from the architecture's name. Sources:
Megatron-LM's GPT (arXiv:1909.08053; its default dropout is 0.1), Llama (arXiv:2302.13971), Nemotron-4 (arXiv:2402.16819), MPT as
llm-foundry's benchmark configures it (learned positions, biases kept: the printed parameter counts say so), BLOOM
(arXiv:2211.05100).
"""

from __future__ import annotations

from typing import Any

from windtunnel.reality.adapters import adapters_of
from windtunnel.reality.mixture import mixture_of, released_of
from windtunnel.reality.rows import TrainingRow
from windtunnel.reality.skipped import Skipped
from windtunnel.spec.model import Model

DEFAULT_VOCAB = 51200
"""GPT-2's 50,257 tokens padded as Megatron pads them for 8-way tensor parallelism."""

_DROPOUT = ("megatron", "megatron-deepspeed", "megascale")
_DROPOUT_UNTIL = (2024, 7)
"""Dropout 0.1 is Megatron-LM's default (megatron/arguments.py), which its GPT runs keep; Megatron-Core's recipes, from about
then, turn it off."""

_HEADS = ("chronicles-prequel.md", 64)
"""Where the table of a source has no column of heads, its text says how many: "all NHEADS=64 (above too)", section "Final round
comparison" of BLOOM's planning runs."""

_MOST_HEADS = 4096
_SIZE_TOLERANCE = 0.03
"""How far a printed parameter count may lie from the counted one: rounding, and sizes counted before the vocabulary was padded."""

_FACTS: dict[str, dict[str, Any]] = {
    "gpt": {"activation": "gelu", "norm": "layernorm", "position": "learned", "tied_embeddings": True, "linear_bias": True},
    "mpt": {"activation": "gelu", "norm": "layernorm", "position": "learned", "tied_embeddings": True, "linear_bias": True},
    "llama": {"activation": "swiglu", "norm": "rmsnorm", "position": "rope", "tied_embeddings": False, "linear_bias": False},
    "nemotron": {
        "activation": "squared_relu",
        "norm": "layernorm",
        "position": "rope",
        "tied_embeddings": False,
        "linear_bias": False,
    },
    "bloom": {
        "activation": "gelu",
        "norm": "layernorm",
        "position": "alibi",
        "tied_embeddings": True,
        "linear_bias": True,
        "embedding_norm": True,
    },
}


def model_of(row: TrainingRow, software: tuple[int, int] | None, assumed: list[str]) -> Model | Skipped:
    """The row's network; what the row does not say is appended to `assumed`. `software` is (year, month) of the framework."""
    arch = "bloom" if (row.model or "").lower().startswith("bloom") else (row.arch or "")
    if arch == "moe" or row.experts or row.attention not in (None, "mha"):
        return mixture_of(row, assumed)
    if arch not in _FACTS and (released := released_of(row, assumed)) is not None:
        return released
    if arch not in _FACTS:
        return Skipped(
            f"the layers of {row.model!r} are not in the row, and the catalogue has no model of that name"
            if row.model
            else f"architecture {arch or 'not published'!r} without a model's name"
        )
    layers, hidden, ffn, seq = row.layers or _usual_layers(row), row.hidden, row.ffn, row.seq
    told = _HEADS[1] if _HEADS[0] in (row.source or "") else None
    heads = row.heads if row.heads is not None else told or _usual_heads(hidden or 0, row.tp or 1)
    if not (layers and hidden and heads and ffn and seq):
        blank = [name for name in ("layers", "hidden", "ffn", "seq") if not getattr(row, name)] or ["heads"]
        return Skipped(f"{', '.join(blank)} not published")
    facts = dict(_FACTS[arch])
    if row.layers is None:
        assumed.append(f"{layers} layers (not published: the multiple of pp = {row.pp} nearest to {row.params_b:g}e9 parameters)")
    if row.heads is None:
        why = "the source's text" if told else "not published: the width nearest to 128 that the plan can cut"
        assumed.append(f"{heads} heads of {hidden // heads} ({why})")
    if row.vocab is None:
        assumed.append(f"vocabulary {DEFAULT_VOCAB} (not published)")
    if row.kv_heads is None:
        assumed.append("as many key/value heads as heads (not published)")
    if arch == "gpt" and row.framework in _DROPOUT and software is not None and software < _DROPOUT_UNTIL:
        facts["dropout"] = True
        assumed.append("dropout 0.1, Megatron's default at that time")
    _features(row, seq, facts, assumed)
    facts["lora"] = adapters_of(row, assumed)
    return Model(
        name=row.model or f"{arch}-{hidden}x{layers}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=row.kv_heads,
        ffn=ffn,
        vocab=row.vocab or DEFAULT_VOCAB,
        max_seq=seq,
        source=row.source or "",
        **facts,
    )


def _usual_heads(hidden: int, tp: int) -> int:
    """Heads whose width is nearest to 128, the usual one, of those that divide `hidden` and that `tp` divides; else 0."""
    found = [heads for heads in range(tp, min(hidden, _MOST_HEADS) + 1, tp) if hidden % heads == 0]
    return min(found, key=lambda heads: (abs(hidden / heads - 128.0), heads), default=0)


def _usual_layers(row: TrainingRow) -> int | None:
    """Layers that divide evenly over the stages and come nearest to the printed size, where that is within 3 %; else None.

    Counts 12 h^2 + 13 h for a layer and V h for the embedding (Narayanan et al. 2021, arXiv:2104.04473, equation 2).
    """
    hidden, pp, size = row.hidden or 0, row.pp or 0, 1e9 * (row.params_b or 0.0)
    if not (hidden and pp and size) or row.ffn != 4 * hidden:
        return None
    layer, rest = 12.0 * hidden**2 + 13.0 * hidden, float((row.vocab or DEFAULT_VOCAB) * hidden)
    layers = max(1, round((size - rest) / layer / pp)) * pp
    return layers if abs(layers * layer + rest - size) <= _SIZE_TOLERANCE * size else None


def _features(row: TrainingRow, seq: int, facts: dict[str, Any], assumed: list[str]) -> None:
    """Changes of the network that the row lists as features (MegaScale, arXiv:2402.15627 section 3.1)."""
    features = set((row.features or "").split(";"))
    if "parallel_block" in features:
        facts["parallel_block"] = True
    if "sliding_window" in features:
        facts["window"] = max(1, seq // 2)
        assumed.append(f"sliding window of {max(1, seq // 2)} tokens in every layer (width not published)")
