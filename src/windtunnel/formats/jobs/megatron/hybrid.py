"""Megatron-LM's flags of hybrid models (`MambaModel`; megatron/core/ssm/mamba_hybrid_layer_allocation.py)."""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.megatron.arguments import Arguments

_PATTERNS = ("hybrid-override-pattern", "hybrid-layer-pattern")
_SIZES = {
    "mamba-num-heads": "ssm_heads",
    "mamba-head-dim": "ssm_head_dim",
    "mamba-num-groups": "ssm_groups",
    "mamba-state-dim": "ssm_state",
}


def pattern_of(args: Arguments) -> str | None:
    """The letters of a hybrid model's layers, without the cuts of its pipeline; None where the flags give none."""
    letters = _pattern_text(args)
    return None if letters is None else letters.replace("|", "")


def cuts_of(args: Arguments, pp: int) -> tuple[int, ...] | None:
    """Layers of each virtual stage where the pattern has bars between them; SpecError if they are no multiple of `pp` stages."""
    letters = _pattern_text(args)
    if letters is None or "|" not in letters:
        return None
    counts = tuple(map(len, letters.split("|")))
    if len(counts) % pp or min(counts) < 1:
        raise SpecError("--hybrid-layer-pattern", letters, f"bars that cut it into a multiple of {pp} parts, none of them empty")
    return counts


def _pattern_text(args: Arguments) -> str | None:
    return next((text for flag in _PATTERNS if (text := args.text(flag)) is not None), None)


def hybrid_of(args: Arguments, layers: int, hidden: int) -> dict[str, Any]:
    """Fields that a pattern of mixers decides, with Megatron's defaults; empty without one.

    Raises SpecError for a pattern that is not one letter a layer.
    """
    letters = pattern_of(args)
    args.switch("is-hybrid-model")
    if letters is None:
        return {}
    if set(letters) - set("MG*-E"):
        raise SpecError(
            "--hybrid-override-pattern",
            letters,
            "a letter for each layer: M, G, *, - or E",
            "Give cuts of the pipeline as plan.stages, further tokens as --mtp-num-layers.",
        )
    if len(letters) != layers:
        raise SpecError("--num-layers", layers, f"{len(letters)}, the length of the pattern")
    table: dict[str, Any] = {"layer_pattern": letters}
    if "M" in letters:
        table |= {field: args.integer(flag) for flag, field in _SIZES.items()}
        if table["ssm_heads"] is None:
            table["ssm_heads"] = 2 * hidden // (table["ssm_head_dim"] or 64)
            args.assumed.append(f"{table['ssm_heads']} heads of Mamba-2: twice the hidden size (--mamba-num-heads left out)")
    return table
