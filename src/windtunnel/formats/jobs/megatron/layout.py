"""Layers of each pipeline stage from Megatron-LM's flags: even, interleaved, shortened ends, or a written layout.

Megatron-LM's flags of hybrid models (`MambaModel`; megatron/core/ssm/mamba_hybrid_layer_allocation.py).
"""

from __future__ import annotations

import re
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.megatron.arguments import Arguments

_REPEATED = re.compile(r"\(([^()]*)\)\*(\d{1,4})|([tmELP])\*(\d{1,4})")
_LONGEST = 20_000


def layers_of(args: Arguments, layers: int, pp: int) -> tuple[tuple[int, ...] | None, int]:
    """(layers of every virtual stage in model order, or None where they divide evenly; virtual stages per rank)."""
    layout = args.text("pipeline-model-parallel-layout")
    if layout is not None:
        return _parse_layout(args, layout, layers, pp)
    per_chunk, chunks = args.integer("num-layers-per-virtual-pipeline-stage"), args.integer("num-virtual-stages-per-pipeline-rank")
    first, last = args.integer("decoder-first-pipeline-num-layers"), args.integer("decoder-last-pipeline-num-layers")
    counted = layers + args.switch("account-for-embedding-in-pipeline-split") + args.switch("account-for-loss-in-pipeline-split")
    vpp = chunks or 1
    if per_chunk is not None:
        if per_chunk < 1 or counted % (pp * per_chunk):
            raise SpecError("--num-layers-per-virtual-pipeline-stage", per_chunk, f"a divisor of a stage's layers ({counted}/{pp})")
        vpp = counted // (pp * per_chunk)
    if first is not None or last is not None:
        return _ends(layers, pp, vpp, first, last), vpp
    if counted == layers and layers % (pp * vpp) and vpp == 1 and layers >= pp:
        base, extra = divmod(layers, pp)
        stages = [base + (stage < extra) for stage in range(pp)]
        args.assumed.append(f"layers {stages[0]} on the first {extra} stages, {base} on the rest: {layers} do not divide by {pp}")
        return tuple(stages), 1
    if counted == layers:
        return None, vpp
    if counted % (pp * vpp):
        raise SpecError("--num-layers", layers, f"{counted} (with embedding and loss) as a multiple of {pp * vpp} virtual stages")
    stages = [counted // (pp * vpp)] * (pp * vpp)
    stages[0] -= args.switch("account-for-embedding-in-pipeline-split")
    stages[-1] -= args.switch("account-for-loss-in-pipeline-split")
    return _check_stages(stages, "--num-layers", layers, least=0), vpp  # an end may be the embedding or the loss alone


def _ends(layers: int, pp: int, vpp: int, first: int | None, last: int | None) -> tuple[int, ...]:
    """First and last stage as stated, the middle evenly; each stage's layers spread evenly over its virtual stages."""
    middle = pp - (first is not None) - (last is not None)
    left = layers - (first or 0) - (last or 0)
    if vpp > 1:
        raise SpecError("--decoder-first-pipeline-num-layers", first, "one virtual stage per rank in this version")
    if middle < 0 or left < middle or (middle and left % middle) or (not middle and left):
        raise SpecError("--decoder-first-pipeline-num-layers", first, f"ends that leave a multiple of {middle} of {layers} layers")
    inner = [left // middle] * middle if middle else []
    stages = ([] if first is None else [first]) + inner + ([] if last is None else [last])
    return _check_stages(stages, "--decoder-first-pipeline-num-layers", first)


def _parse_layout(args: Arguments, layout: str, layers: int, pp: int) -> tuple[tuple[int, ...], int]:
    """`Et*3|(tt|)*29,m|L`: one part between bars is a virtual stage, `t` a layer, `E` embedding, `L` loss, `m` multi-token
    prediction. A part may be without layers."""
    flag = "--pipeline-model-parallel-layout"
    text = re.sub(r"[\s,]", "", layout)
    while True:
        repeats = [(*(match.group(1, 2) if match.group(2) else match.group(3, 4)),) for match in _REPEATED.finditer(text)]
        if len(text) + sum(len(body) * int(times) for body, times in repeats) > _LONGEST:
            raise SpecError(flag, layout, f"at most {_LONGEST} letters when written out")
        if not repeats:
            break
        text = _REPEATED.sub(_written_out, text)
    if not re.fullmatch(r"[EtmLP|]+", text):
        raise SpecError(flag, layout, "letters E, t, m, L between bars, such as Et*3|(tt|)*29,m|L")
    parts = text.split("|")
    for letter, place, where in (("E", 0, "first"), ("L", -1, "last")):
        if text.count(letter) > (letter in parts[place]):
            raise SpecError(flag, layout, f"{letter} once, in the {where} part", "Other places are not modelled in this version.")
    counts = [part.count("t") for part in parts]
    if sum(counts) != layers or len(counts) % pp:
        raise SpecError(flag, layout, f"{layers} t in a multiple of {pp} parts", f"It has {sum(counts)} t in {len(counts)} parts.")
    further = args.integer("mtp-num-layers") or 0
    if text.count("m") != further:
        raise SpecError(flag, layout, f"as many m as --mtp-num-layers = {further}")
    if text.count("m") > parts[-1].count("m"):
        args.assumed.append(f"layers that predict further tokens run with the loss, not in a part before it (m in {flag})")
    return tuple(counts), len(counts) // pp


def _written_out(repeat: re.Match[str]) -> str:
    body, times = repeat.group(1, 2) if repeat.group(2) else repeat.group(3, 4)
    return str(body) * int(times)


def _check_stages(stages: list[int], flag: str, got: object, least: int = 1) -> tuple[int, ...]:
    if min(stages) < least:
        raise SpecError(flag, got, "at least one layer in every virtual stage")
    return tuple(stages)


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
