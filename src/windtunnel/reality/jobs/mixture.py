"""The network of a row with experts or latent attention: tables print some of its dimensions, the released model has all."""

from __future__ import annotations

from typing import Any

from windtunnel.reality.rows.skipped import Skipped
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import load_model, names
from windtunnel.spec.model import Model

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
    if len(matches) != 1 or _differing(row, model := load_model(matches[0])):
        return None
    assumed.append(f"dimensions that the row does not print: the released {matches[0]}")
    return _without_mtp(row, model)


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
    needs = ("layers", "hidden", "heads", "ffn", "vocab", "seq", *mixture)
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
            "vocab": row.vocab,
            "max_seq": row.seq,
            "source": row.source or "",
            **fields,
        }
    )
