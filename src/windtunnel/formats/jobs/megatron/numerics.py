"""Megatron-LM's flags of settings that change a network's numbers and no second (names of megatron/training/arguments.py).

Megatron-LM's flags of low precision.

Megatron-LM's flags of context parallelism and of CUDA graphs.

Megatron-LM's flags of the optimizer.

Megatron-LM's flags of offload.
"""

from __future__ import annotations

import re
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.megatron.arguments import Arguments
from windtunnel.spec.model import Numerics

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
    switches = {"fp8_attention": "fp8-dot-product-attention", "fp8_output_layer": "fp8-output-proj"}
    return fields | {field: args.switch(flag) for field, flag in switches.items()}


KINDS = ("p2p", "all_gather", "a2a", "a2a+p2p")
SCOPES = ("attn", "mamba", "mlp", "moe", "moe_router", "moe_preprocess")


def context_of(args: Arguments, cp: int) -> dict[str, Any]:
    """Fields of the plan: how ranks exchange keys and values; empty without context parallelism."""
    listed = [word.replace("allgather", "all_gather") for word in args.words_of("cp-comm-type") or ["p2p"]]
    kinds = list(dict.fromkeys(word for entry in listed for word in re.split(r"[,\s]+", entry) if word))
    sizes = args.words_of("hierarchical-context-parallel-sizes") or []
    for kind in kinds:
        if kind not in KINDS:
            raise SpecError("--cp-comm-type", kind, ", ".join(KINDS))
    if cp == 1:
        return {}
    if len(kinds) > 1:
        raise SpecError("--cp-comm-type", " ".join(listed), "one way for all layers", "Write the one that most layers have.")
    fields: dict[str, Any] = {"cp_kind": kinds[0]}
    if kinds[0] == "a2a+p2p":
        if len(sizes) != 2 or not all(size.isdecimal() and int(size[:9]) > 0 for size in sizes):
            raise SpecError(
                "--hierarchical-context-parallel-sizes",
                " ".join(sizes),
                f"two whole numbers whose product is --context-parallel-size = {cp}",
            )
        fields["cp_sizes"] = [int(size[:9]) for size in sizes]
    return fields


def graphs_of(args: Arguments) -> dict[str, Any]:
    """Launch mode: whole CUDA graphs, graphs of some modules, or none."""
    implementation = args.text("cuda-graph-impl")
    if implementation not in (None, "none", "local", "transformer_engine", "full_iteration"):
        raise SpecError("--cuda-graph-impl", implementation, "none, local, transformer_engine, full_iteration")
    old = args.switch("enable-cuda-graph") or args.switch("external-cuda-graph")
    scope = list(dict.fromkeys(word for entry in args.words_of("cuda-graph-scope") or [] for word in entry.split(",") if word))
    if not old and implementation in (None, "none"):
        return {}
    if unknown := [word for word in scope if word not in (*SCOPES, "full", "full_iteration")]:
        raise SpecError("--cuda-graph-scope", unknown[0], ", ".join((*SCOPES, "full_iteration")))
    if not scope or implementation == "full_iteration" or "full" in scope or "full_iteration" in scope:
        return {"launch": "cuda_graph"}
    return {"launch": "eager", "graph_scope": scope}


OPTIMIZERS = {"adam": "adam", "lamb": "lamb", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
DTYPES = ("fp32", "fp16", "bf16", "fp8")


def optimizer_of(args: Arguments) -> dict[str, Any]:
    """Fields of the runtime: the optimizer, formats of its moments, and how Muon treats weights that tp cuts."""
    name = args.text("optimizer") or "adam"
    if name not in OPTIMIZERS:
        args.assumed.append(f"optimizer adam in place of {name}")
    fields: dict[str, Any] = {"optimizer": OPTIMIZERS.get(name, "adam")}
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
