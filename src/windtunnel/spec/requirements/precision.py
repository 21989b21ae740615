"""Requirements of the low-precision switches of a runtime on the GPU and on each other."""

from __future__ import annotations

from windtunnel.base.errors import PlanError
from windtunnel.spec.machine import GPU
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Runtime

NARROW = ("fp8", "mxfp8", "nvfp4")
"""Formats of products' inputs that are quantised from 16 bits."""

_SINCE = {"fp8": "Ada, Hopper and later", "mxfp8": "Blackwell and later", "nvfp4": "Blackwell and later"}
_SWITCHES = {
    "fp8_recipe": None,
    "fp8_amax_reduce": "none",
    "fp8_param_gather": False,
    "fp8_attention": False,
    "fp8_output_layer": False,
    "save_original_input": False,
    "fused_hadamard": False,
    "bf16_layers": (0, 0),
}
"""Switches that only act under a low precision, with their defaults."""


_HAVE = {
    "torchtitan": ("current", "rowwise"),
    "megatron-core": ("delayed", "current", "blockwise"),
    "nemo": ("delayed", "current", "blockwise"),
}
"""Scales of fp8 that a framework's library has: torchao, Transformer Engine."""


def check_precision(runtime: Runtime, gpu: GPU, layers: int, plan: Plan) -> None:  # long: one refusal after another
    """Raise PlanError if the GPU lacks the format, or if a switch has no effect."""
    precision = runtime.precision
    if precision not in gpu.peak:
        has = [name for name in gpu.peak if name not in ("fp32", "tf32")]
        raise PlanError("runtime.precision", precision, ", ".join(sorted(gpu.peak)) + f" on {gpu.id}", _instead(precision, has))
    if precision not in NARROW:
        for field, off in _SWITCHES.items():
            if getattr(runtime, field) != off:
                raise PlanError(
                    f"runtime.{field}",
                    getattr(runtime, field),
                    f"nothing: runtime.precision is {precision}",
                    "Write --set runtime.precision=fp8, or leave it out.",
                )
        return
    if precision != "fp8" and runtime.fp8_recipe is not None:
        raise PlanError(
            "runtime.fp8_recipe",
            runtime.fp8_recipe,
            f"nothing: {precision} has scales of its own",
            f"Leave it out, or write --set runtime.precision=fp8 --set runtime.fp8_recipe={runtime.fp8_recipe}.",
        )
    have = _HAVE.get(runtime.framework, (runtime.recipe,))
    if precision == "fp8" and runtime.recipe not in have:
        raise PlanError(
            "runtime.fp8_recipe",
            runtime.recipe,
            f"{', '.join(have)} under {runtime.framework}",
            "Write --set runtime.fp8_recipe=current.",
        )
    if runtime.fp8_amax_reduce != "none" and runtime.recipe != "delayed":
        raise PlanError(
            "runtime.fp8_amax_reduce",
            runtime.fp8_amax_reduce,
            f"none under recipe {runtime.recipe}: only delayed scaling keeps a history of largest values",
            "Write --set runtime.fp8_recipe=delayed.",
        )
    if runtime.recipe in ("nvfp4", "rowwise") and runtime.fp8_param_gather:
        raise PlanError(
            "runtime.fp8_param_gather",
            True,
            f"false under {runtime.recipe}: frameworks gather its weights in 16 bits",
            "Write --set runtime.fp8_param_gather=false.",
        )
    if precision != "nvfp4" and runtime.fused_hadamard:
        raise PlanError(
            "runtime.fused_hadamard",
            True,
            f"false under {precision}: only nvfp4 rotates what it quantises",
            "Write --set runtime.precision=nvfp4, or leave it out.",
        )
    if runtime.fp8_attention and runtime.attention != "flash":
        raise PlanError(
            "runtime.fp8_attention",
            True,
            f"false with runtime.attention={runtime.attention}: only fused attention multiplies in 8 bits",
            "Write --set runtime.attention=flash.",
        )
    if runtime.fp8_output_layer and runtime.cross_entropy not in ("vocab_parallel", "gathered"):
        raise PlanError(
            "runtime.fp8_output_layer",
            True,
            f"false with runtime.cross_entropy={runtime.cross_entropy}: that kernel multiplies in 16 bits",
            "Write --set runtime.cross_entropy=vocab_parallel.",
        )
    if plan.quantised_gather and runtime.fp8_param_gather:
        raise PlanError(
            "plan.quantised_gather",
            True,
            "false with runtime.fp8_param_gather: parameters travel in 8 bits already",
            "Write --set plan.quantised_gather=false.",
        )
    if sum(runtime.bf16_layers) > layers:
        raise PlanError("runtime.bf16_layers", list(runtime.bf16_layers), f"at most model.layers = {layers} together")


def _instead(precision: str, has: list[str]) -> str:
    """Suggestion if a GPU lacks a format."""
    since = f"{precision} products need {_SINCE[precision]}. " if precision in _SINCE else ""
    if precision == "mxfp8" and "fp8" in has:
        return since + "Write --set runtime.precision=fp8; --set runtime.fp8_recipe=blockwise has scales for every 128 numbers."
    best = next((name for name in ("mxfp8", "fp8", "bf16", "fp16") if name in has), None)
    return since + (f"Write --set runtime.precision={best}." if best else "")
