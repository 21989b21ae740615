"""Megatron-LM's flags of low precision."""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.megatron.arguments import Arguments

RECIPES = {"delayed": "delayed", "tensorwise": "current", "blockwise": "blockwise"}
"""--fp8-recipe: `runtime.fp8_recipe`; mxfp8 is a precision of its own here."""


def precision_of(args: Arguments, half: str) -> dict[str, Any]:
    """Fields of the runtime; `half` is the format of all else. Raises SpecError for a recipe that Megatron does not have."""
    recipe = args.text("fp8-recipe") or "delayed"
    narrow = bool(args.text("fp8-format")) or args.switch("fp8-hybrid") or args.switch("fp8-e4m3")
    if args.text("fp4-format"):
        fields: dict[str, Any] = {"precision": "nvfp4"}
    elif not narrow:
        return {"precision": half}
    elif recipe == "mxfp8":
        fields = {"precision": "mxfp8", "fp8_param_gather": args.switch("fp8-param-gather")}
    elif recipe in RECIPES:
        fields = {"precision": "fp8", "fp8_recipe": RECIPES[recipe], "fp8_param_gather": args.switch("fp8-param-gather")}
    else:
        raise SpecError("--fp8-recipe", recipe, ", ".join((*RECIPES, "mxfp8")))
    if fields.get("fp8_recipe") == "delayed" and args.switch("tp-only-amax-red"):
        fields["fp8_amax_reduce"] = "tp"
    if args.switch("first-last-layers-bf16"):
        ends = (args.integer(f"num-layers-at-{end}-in-bf16") for end in ("start", "end"))
        fields["bf16_layers"] = [1 if count is None else count for count in ends]
    return fields
