"""Megatron-LM's flags of low precision and of offload."""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.megatron_args import Arguments

_RECIPES = {"delayed": "delayed", "tensorwise": "current", "blockwise": "blockwise", "mxfp8": None}


def low_precision(args: Arguments) -> dict[str, Any]:
    """Runtime fields of FP8 and FP4; empty where products stay in 16 bits or more."""
    for flag, formats in (("fp8-format", ("e4m3", "hybrid")), ("fp4-format", ("e2m1", "nvfp4"))):
        if (said := args.text(flag)) is not None and said not in formats:
            raise SpecError(f"--{flag}", said, ", ".join(formats))
    if args.text("fp4-format"):
        if args.switch("fp4-param-gather"):
            args.assumed.append("weights are gathered in 16 bits (--fp4-param-gather)")
        return {"precision": "nvfp4"} | _whole_layers(args)
    if not (args.text("fp8-format") or args.switch("fp8-hybrid") or args.switch("fp8-e4m3")):
        return {}
    said = args.text("fp8-recipe") or "delayed"
    if said not in _RECIPES:
        raise SpecError("--fp8-recipe", said, ", ".join(_RECIPES), "Custom recipes are code and cannot be read.")
    fields: dict[str, Any] = {"precision": "mxfp8" if said == "mxfp8" else "fp8", "fp8_recipe": _RECIPES[said],
                              "fp8_param_gather": args.switch("fp8-param-gather")}
    if args.switch("tp-only-amax-red"):
        fields["fp8_amax_reduce"] = "tp"
    return {key: value for key, value in fields.items() if value is not None} | _whole_layers(args)


def _whole_layers(args: Arguments) -> dict[str, Any]:
    """Layers at both ends whose products stay in 16 bits; one each where their numbers are left out."""
    if not args.switch("first-last-layers-bf16"):
        return {}
    ends = (args.integer("num-layers-at-start-in-bf16"), args.integer("num-layers-at-end-in-bf16"))
    return {"bf16_layers": [1 if number is None else number for number in ends]}


def offload_of(args: Arguments) -> dict[str, Any] | None:
    """Fields of `plan.offload`; None where everything stays on the GPU."""
    fields: dict[str, Any] = {}
    layers = args.integer("cpu-offloading-num-layers")
    if args.switch("cpu-offloading") or layers:
        if not layers:
            raise SpecError("--cpu-offloading-num-layers", layers, "a number of layers beside --cpu-offloading")
        fields["activations"] = layers
    if args.switch("optimizer-cpu-offload"):
        fraction = args.number("optimizer-offload-fraction")
        fields |= {"optimizer": "host", "overlap": args.switch("overlap-cpu-optimizer-d2h-h2d")}
        if fraction is not None:
            fields["optimizer_fraction"] = fraction
    return fields or None
