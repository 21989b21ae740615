"""Megatron-LM's flags of the optimizer.

Megatron-LM's flags of offload.
"""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.megatron.arguments import Arguments

KINDS = {"adam": "adam", "lamb": "lamb", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
DTYPES = ("fp32", "fp16", "bf16", "fp8")


def optimizer_of(args: Arguments) -> dict[str, Any]:
    """Fields of the runtime: the optimizer, formats of its moments, and how Muon treats weights that tp cuts."""
    name = args.text("optimizer") or "adam"
    if name not in KINDS:
        args.assumed.append(f"optimizer adam in place of {name}")
    fields: dict[str, Any] = {"optimizer": KINDS.get(name, "adam")}
    aware = args.switch("use-precision-aware-optimizer")
    for flag, field in (("exp-avg-dtype", "exp_avg_dtype"), ("exp-avg-sq-dtype", "exp_avg_sq_dtype")):
        dtype = args.text(flag)
        if dtype is not None and dtype not in DTYPES:
            raise SpecError(f"--{flag}", dtype, ", ".join(DTYPES))
        if dtype is not None and aware and fields["optimizer"] == "adam":
            fields[field] = dtype
    for flag in ("main-params-dtype", "main-grads-dtype"):
        if (dtype := args.text(flag)) not in (None, "fp32"):
            args.assumed.append(f"fp32 in place of --{flag} {dtype}")
    mode = args.text("muon-tp-mode")
    if mode is not None and fields["optimizer"] == "muon" and (args.integer("tensor-model-parallel-size") or 1) > 1:
        if mode not in ("blockwise", "duplicated", "distributed"):
            raise SpecError("--muon-tp-mode", mode, "blockwise, duplicated, distributed")
        fields["muon_tp"] = mode
    return fields


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
