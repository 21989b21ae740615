"""Megatron-LM's flags of experts and of latent attention (`TransformerConfig`, `MLATransformerConfig`)."""

from __future__ import annotations

import ast
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.huggingface.hybrids import pattern
from windtunnel.formats.jobs.megatron.arguments import Arguments

_LONGEST = 10_000


def is_mixture(args: Arguments) -> bool:
    """Whether the flags ask for experts."""
    return (args.integer("num-experts") or 0) > 0


def mixture_of(args: Arguments, layers: int) -> dict[str, Any]:
    """Fields of the model that experts decide; empty for a dense model."""
    if not is_mixture(args):
        return {}
    table: dict[str, Any] = {"experts": args.integer("num-experts"), "expert_ffn": args.integer("moe-ffn-hidden-size")}
    table["top_k"] = args.integer("moe-router-topk") or 2
    if not args.has("moe-router-topk"):
        args.assumed.append("2 experts a token, Megatron's default (--moe-router-topk left out)")
    if shared := args.integer("moe-shared-expert-intermediate-size"):
        table["shared_ffn"] = shared
    if args.switch("moe-shared-expert-gate"):
        args.assumed.append("the gate of the shared experts, one number a token, is left out (--moe-shared-expert-gate)")
    frequency = args.text("moe-layer-freq")
    if frequency is not None:
        wanted = _layers(frequency, "--moe-layer-freq", layers, every=lambda i, n: i % n == 0)
        if not any(wanted):
            raise SpecError("--moe-layer-freq", frequency, "a layer with experts, or no --num-experts")
        if not all(wanted):
            table["layer_pattern"] = pattern(["E" if one else "D" for one in wanted])
    if groups := args.integer("moe-router-num-groups"):
        table |= {"router_groups": groups, "router_top_groups": args.integer("moe-router-group-topk") or groups}
    table["router"] = _one_of(args, "moe-router-score-function", {"softmax": "softmax", "sigmoid": "sigmoid"}, "softmax")
    kinds = {"aux_loss": "aux_loss", "seq_aux_loss": "aux_loss", "global_aux_loss": "aux_loss", "sinkhorn": "none", "none": "none"}
    kind = (args.words_of("moe-router-load-balancing-type") or ["aux_loss"])[0]
    if kind not in kinds:
        raise SpecError("--moe-router-load-balancing-type", kind, ", ".join(kinds))
    balance = kinds[kind]
    table["balance"] = "bias" if args.switch("moe-router-enable-expert-bias") else balance
    return table


def latent_of(args: Arguments) -> dict[str, Any]:
    """Fields of latent attention, with Megatron's defaults; empty without it."""
    if not args.switch("multi-latent-attention"):
        return {}
    args.switch("qk-layernorm")  # the norms of the compressed query, key and value, which are always there
    table: dict[str, Any] = {
        "qk_norm": False,
        "q_lora_rank": args.integer("q-lora-rank"),
        "kv_lora_rank": args.integer("kv-lora-rank") or 32,
    }
    for flag, field, default in (
        ("qk-head-dim", "qk_nope_dim", 128),
        ("qk-pos-emb-head-dim", "qk_rope_dim", 64),
        ("v-head-dim", "v_dim", 128),
    ):
        table[field] = args.integer(flag) or default
    missing = [f"--{flag}" for flag in ("kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim") if not args.has(flag)]
    if missing:
        args.assumed.append(f"Megatron's defaults of latent attention for {', '.join(missing)}")
    return table


def windows_of(args: Arguments, layers: int) -> str | None:
    """Pattern of layers with the window, where not all have it."""
    frequency = args.text("window-attn-skip-freq")
    if frequency is None:
        return None
    local = _layers(frequency, "--window-attn-skip-freq", layers, lambda i, n: (i + 1) % n != 0)
    return pattern(["L" if one else "G" for one in local])


def expert_axes(args: Arguments, tp: int) -> dict[str, int]:
    """Expert and expert-tensor parallelism; the second is tp's where it is left out, as Megatron has it."""
    ep, etp = args.integer("expert-model-parallel-size") or 1, args.integer("expert-tensor-parallel-size")
    if not is_mixture(args):
        if ep > 1 or (etp or 1) > 1:
            flag = "expert-model-parallel-size" if ep > 1 else "expert-tensor-parallel-size"
            raise SpecError(f"--{flag}", ep if ep > 1 else etp, "experts to spread", "Add --num-experts.")
        return {}
    if etp is None and tp > 1:
        args.assumed.append(f"experts are cut over {tp} ranks, as all else is (--expert-tensor-parallel-size left out)")
    return {"ep": ep, "etp": etp or tp}


def dispatch_of(args: Arguments) -> dict[str, Any]:
    """Runtime fields of experts; Megatron's defaults where a flag is left out."""
    if not is_mixture(args):
        return {}
    dispatcher = args.text("moe-token-dispatcher-type") or "allgather"
    kinds = {"allgather": "allgather", "alltoall": "alltoall", "alltoall_seq": "alltoall", "flex": "deepep"}
    if dispatcher not in kinds:
        raise SpecError("--moe-token-dispatcher-type", dispatcher, ", ".join(kinds))
    if not args.has("moe-token-dispatcher-type"):
        args.assumed.append("tokens reach experts by all-gather, Megatron's default (--moe-token-dispatcher-type left out)")
    backend = args.text("moe-flex-dispatcher-backend") or "deepep"
    if backend not in ("deepep", "hybridep"):
        raise SpecError("--moe-flex-dispatcher-backend", backend, "deepep, hybridep")
    args.switch("moe-enable-deepep")
    fields: dict[str, Any] = {
        "moe_dispatch": backend if dispatcher == "flex" else kinds[dispatcher],
        "moe_permute_fusion": args.switch("moe-permute-fusion"),
        "moe_fused_router": args.switch("moe-router-fusion"),
        "moe_shared_overlap": args.switch("moe-shared-expert-overlap"),
        "moe_a2a_overlap": args.switch("overlap-moe-expert-parallel-comm"),
        "moe_grouped_gemm": "one" if args.switch("moe-use-legacy-grouped-gemm") else "each",
    }
    wide = args.text("moe-router-dtype") in ("fp32", "fp64")
    if args.software is None:  # else the software says how it multiplies what its recipes keep in fp32
        fields["moe_router_dtype"] = "fp32" if wide else "bf16"
    if not args.switch("moe-grouped-gemm"):
        fields["moe_grouped_gemm"] = "modules"
        args.assumed.append("experts run one after the other, a launch each (--moe-grouped-gemm left out)")
    if (capacity := args.number("moe-expert-capacity-factor")) is not None:
        fields |= {"moe_capacity": capacity, "moe_pad_to_capacity": args.switch("moe-pad-expert-input-to-capacity")}
    else:
        args.assumed.append("even routing; runtime.moe_imbalance states another")
    return fields


def _one_of(args: Arguments, flag: str, kinds: dict[str, str], default: str) -> str:
    value = args.text(flag) or default
    if value not in kinds:
        raise SpecError(f"--{flag}", value, ", ".join(kinds))
    return kinds[value]


def _layers(expression: str, flag: str, layers: int, every: Any) -> list[bool]:
    """Which layers a frequency means: a number, or a list of zeros and ones such as ([0]*3+[1]*58)."""
    wanted = "a whole number, or a list of zeros and ones such as ([0]*3+[1]*58)"
    if len(expression) > _LONGEST:
        raise SpecError(flag, expression, f"{wanted}, of at most {_LONGEST} characters")
    try:
        value = _value(ast.parse(expression.strip().strip("'\""), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a parser's stack that overflows is a MemoryError
        raise SpecError(flag, expression, wanted) from None
    if isinstance(value, int):
        if value < 1:
            raise SpecError(flag, expression, wanted)
        return [bool(every(i, value)) for i in range(layers)]
    if len(value) != layers:
        raise SpecError(flag, expression, f"one entry for each of the {layers} layers; these are {len(value)}")
    return [bool(one) for one in value]


def _value(node: ast.expr) -> int | list[int]:
    """The number or list that an expression of numbers, lists, + and * stands for; ValueError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List):
        inner = [_value(item) for item in node.elts]
        if not all(isinstance(item, int) for item in inner):
            raise ValueError
        return [item for item in inner if isinstance(item, int)]
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if (
            isinstance(node.op, ast.Add)
            and isinstance(left, list)
            and isinstance(right, list)
            and len(left) + len(right) <= _LONGEST
        ):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int) and len(left) * right <= _LONGEST:
            return left * right
    raise ValueError
