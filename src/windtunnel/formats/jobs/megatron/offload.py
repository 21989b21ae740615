"""Megatron-LM's flags of offload."""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.megatron.arguments import Arguments


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
