"""Megatron-LM's flags of settings that change a network's numbers and no second (names of megatron/training/arguments.py).

Megatron-LM's flags of low precision.
"""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.megatron.arguments import Arguments
from windtunnel.spec.numerics import Numerics

FLAGS = {
    "rope_base": "rotary-base",
    "rope_fraction": "rotary-percent",
    "rope_scaling_factor": "rope-scaling-factor",
    "norm_eps": "norm-epsilon",
    "init_std": "init-method-std",
    "router_scale": "moe-router-topk-scaling-factor",
    "aux_loss": "moe-aux-loss-coeff",
    "z_loss": "moe-z-loss-coeff",
}
"""Flags with a number, by the field of `Numerics`."""
PRE_SOFTMAX = "moe-router-pre-softmax"
"""The softmax runs over all experts before the choice: weights of the chosen ones do not add up to 1."""
SCALING = "use-rope-scaling"
"""Stretches the rotary embedding as Llama 3.1 does."""


def numerics_of(args: Arguments) -> dict[str, Any]:
    """The settings that the flags state, as a table of `Numerics`; empty where they state none."""
    table: dict[str, Any] = {field: args.number(flag) for field, flag in FLAGS.items()}
    if args.switch(PRE_SOFTMAX):
        table["router_normalised"] = False
    if args.switch(SCALING):
        table["rope_scaling"] = "llama3"
    return {field: value for field, value in table.items() if value is not None}


def numerics_flags(numerics: Numerics | None, experts: bool) -> list[str]:
    """The flags of `numerics`; those of a router only for a mixture."""
    if numerics is None:
        return []
    of_router = {"router_scale", "aux_loss", "z_loss"}
    flags = [
        f"--{flag} {_in_words(value)}"
        for field, flag in FLAGS.items()
        if (value := getattr(numerics, field)) is not None and (experts or field not in of_router)
        if field != "rope_scaling_factor" or numerics.rope_scaling == "llama3"
    ]
    if numerics.rope_scaling == "llama3":
        flags.append(f"--{SCALING}")
    if experts and numerics.router_normalised is False:
        flags.append(f"--{PRE_SOFTMAX}")
    return flags


def _in_words(value: float) -> str:
    """`1000000`, `0.5`, `1e-05`: whole numbers without a point, since --rotary-base takes no other."""
    return str(int(value)) if value == int(value) else repr(value)


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
