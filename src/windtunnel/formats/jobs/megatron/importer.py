"""A Megatron-LM command line or launch script to model, plan and runtime."""

from __future__ import annotations

import math
import re
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.hub_names import (
    USUAL,
    catalogue_model,
    unknown_model,
    vocabulary_of_name,
    vocabulary_of_patch,
    vocabulary_of_type,
)
from windtunnel.formats.jobs.imported import NO_GPUS, Imported, Stated
from windtunnel.formats.jobs.megatron.arguments import Arguments, parse
from windtunnel.formats.jobs.megatron.experts import dispatch_of, expert_axes, is_mixture, latent_of, mixture_of, windows_of
from windtunnel.formats.jobs.megatron.flags import KINDS, NOT_A_DECODER, OF_A_CHECKPOINT
from windtunnel.formats.jobs.megatron.launchers import add_adapters, fill_in
from windtunnel.formats.jobs.megatron.layout import cuts_of, hybrid_of, layers_of, pattern_of
from windtunnel.formats.jobs.megatron.numerics import context_of, graphs_of, numerics_of, offload_of, optimizer_of, precision_of
from windtunnel.formats.jobs.several import plan_of
from windtunnel.spec import Job, Model, Plan, Runtime, check, load_model, load_runtime
from windtunnel.spec.common import LARGEST_LAYERS

FORMAT = "megatron"
REQUIRED = ("num-layers", "hidden-size", "num-attention-heads")
_OF_A_PLAN = ("micro-batch-size", "global-batch-size", "seq-length")
"""Flags of which at least one stands where flags describe a run, and not a model alone."""

_TOKENIZERS = {"pretrain_gpt": "GPT2BPETokenizer", "pretrain_hybrid": "GPT2BPETokenizer", "pretrain_bert": "BertWordPieceLowerCase"}
"""Tokenizers of Megatron-LM's own programs where --tokenizer-type is left out (their `args_defaults`)."""

_NOT_YET = "Not modelled in this version."
_USUAL_SEQ = 4096
"""Longest sequence of a model whose flags name none."""


def from_arguments(text: str, where: str = "arguments", on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model, plan and runtime of the Megatron-LM flags in `text`; with `on`, also a job on that job's cluster.

    What is `stated` beside the flags beats them. Flags without batch and sequence describe a model alone, without plan and runtime.
    Raises `SpecError` naming the flag that is missing, wrong, or asks for something that is not modelled.
    """
    stated = stated or Stated()
    args = parse(text, where, stated)
    return from_parsed(args, text, on, stated)


def from_parsed(args: Arguments, text: str, on: Job | None, stated: Stated) -> Imported:
    """As `from_arguments`, of flags that were parsed from `text`, with or without a model's sizes."""
    fill_in(args, text)
    if not args.has("num-layers") and pattern_of(args) is None and (model := _model_apart(args, stated)) is not None:
        if not any(args.has(flag) for flag in _OF_A_PLAN):
            return Imported(FORMAT, model, ignored=tuple(args.left_over()), assumed=tuple(args.assumed))
        _fill_sequence(args)
        return from_settings(args, add_adapters(args, model), on, stated)
    return from_given(args, on, stated)


def _model_apart(args: Arguments, stated: Stated) -> Model | None:
    """The model of flags without sizes: the one beside them, or of the checkpoint that they load, where its name is known."""
    if stated.model is not None:
        return stated.model
    for flag in OF_A_CHECKPOINT:
        name = args.text(flag) if args.given.get(flag) else None
        model = catalogue_model(re.sub(r"[-_](?:mcore|megatron|torch_dist|dist_ckpt)$", "", name), args.assumed) if name else None
        if model is not None:
            args.assumed.append(f"model {model.name} of the catalogue, for --{flag} {name}")
            return model.model_copy(update={"mtp_layers": args.integer("mtp-num-layers") or 0})
    if named := args.text("model") if args.given.get("model") else None:
        raise unknown_model("--model", named)
    return None


def from_given(args: Arguments, on: Job | None, stated: Stated, form: str = FORMAT) -> Imported:
    """As `from_arguments`, of flags that were parsed, or that another reader wrote."""
    letters = pattern_of(args)
    if letters is not None and not args.has("num-layers"):
        args.given["num-layers"] = [str(len(letters))]
        args.assumed.append(f"{len(letters)} layers, the length of the hybrid pattern (--num-layers left out)")
    for flag in REQUIRED:
        args.required_count(flag)
    if args.required_count("num-layers") > LARGEST_LAYERS:
        raise SpecError("--num-layers", args.required_count("num-layers"), f"at most {LARGEST_LAYERS}")
    _refuse(args)
    if not any(args.has(flag) for flag in _OF_A_PLAN):
        model = _model(args)
        return Imported(
            form, model, None, None, None, _used(args), tuple(args.left_over()), tuple(args.assumed), args.command_line()
        )
    _fill_sequence(args)
    model = _model(args)
    plan = _plan(args, model, on, stated)
    runtime = _runtime(args)
    job = _job(args, model, plan, runtime, on, stated) if on is not None else None
    return _outcome(args, form, model, plan, runtime, job)


def from_settings(
    args: Arguments, model: Model, on: Job | None, stated: Stated, form: str = FORMAT, source: str = "Megatron-LM arguments"
) -> Imported:
    """As `from_arguments`, of settings that another reader wrote as flags, and of a known model."""
    if model.experts:
        args.given.setdefault("num-experts", [str(model.experts)])
    plan = _even(_plan(args, model, on, stated), model, args)
    runtime = _runtime(args)
    if runtime.launch == "cuda_graph" and runtime.moe_host_wait:
        runtime = runtime.model_copy(update={"moe_host_wait": False})
        args.assumed.append("the host does not wait for the experts' token counts: the iteration is one CUDA graph")
    job = _job(args, model, plan, runtime, on, stated) if on is not None else None
    job = job.model_copy(update={"source": source}) if job is not None else None
    return _outcome(args, form, model, plan, runtime, job)


def _even(plan: Plan, model: Model, args: Arguments) -> Plan:
    """Stages as even as can be where layers do not divide and the source writes no layout; offloaded layers within a stage's."""
    parts, changes = plan.pp * plan.vpp, dict[str, Any]()
    if plan.stages is None and model.layers % parts and model.layers >= parts:
        base, extra = divmod(model.layers, parts)
        changes["stages"] = tuple(base + (part < extra) for part in range(parts))
        args.assumed.append(
            f"{extra} of {parts} virtual stages have {base + 1} layers, the others {base}: the layout is not in reach"
        )
    most = -(-model.layers // parts)
    if plan.offload.activations > most:
        changes["offload"] = plan.offload.model_copy(update={"activations": most})
        args.assumed.append(
            f"activations of all {most} layers of a virtual stage are offloaded (of {plan.offload.activations} stated)"
        )
    return plan.model_copy(update=changes) if changes else plan


def _outcome(
    args: Arguments, form: str, model: Model, plan: Plan | None = None, runtime: Runtime | None = None, job: Job | None = None
) -> Imported:
    ignored, assumed = tuple(args.left_over()), tuple(args.assumed)
    return Imported(form, model, plan, runtime, job, _used(args), ignored, assumed, args.command_line())


def _used(args: Arguments) -> tuple[str, ...]:
    return tuple(f"--{name}" for name in sorted(args.used))


def _fill_sequence(args: Arguments) -> None:
    """Sequence and micro batch that the flags of a run leave out."""
    if not args.has("seq-length") and args.has("max-length"):  # Megatron-SWIFT's name
        args.given["seq-length"] = args.words_of("max-length") or []
    if not args.has("seq-length"):
        length = args.integer("max-position-embeddings")
        if length is None:
            raise SpecError("--seq-length", Nothing(), "a whole number of 1 or more; Megatron-LM requires this flag")
        args.given["seq-length"] = [str(length)]
        args.assumed.append(f"sequences of {length} tokens, as --max-position-embeddings (--seq-length left out)")
    if not args.has("micro-batch-size"):
        args.given["micro-batch-size"] = ["1"]
        args.assumed.append("micro batch 1 (--micro-batch-size left out)")


def _refuse(args: Arguments) -> None:
    """What would change the network or its cost and has no counterpart here is an error, not an ignored flag."""
    for flag in args.given:
        if flag.startswith(NOT_A_DECODER) and flag not in KINDS:
            raise SpecError(
                f"--{flag}", " ".join(args.given[flag]) or True, "a decoder of attention, Mamba-2, MLPs and experts", _NOT_YET
            )


def _model(args: Arguments) -> Model:
    hidden = args.required_count("hidden-size")
    ffn = args.integer("ffn-hidden-size")
    if ffn is None:
        ffn = int((4 * hidden * 2 / 3) // 64) * 64 if args.switch("swiglu") else 4 * hidden
        args.assumed.append(f"ffn {ffn}, as Megatron derives it (--ffn-hidden-size left out)")
    table: dict[str, Any] = {
        "name": f"megatron-{hidden}x{args.required_count('num-layers')}",
        "layers": args.required_count("num-layers"),
        "hidden": hidden,
        "heads": args.required_count("num-attention-heads"),
        "ffn": ffn,
        "vocab": _vocab(args),
        "max_seq": args.integer("max-position-embeddings") or args.integer("seq-length") or _USUAL_SEQ,
        "activation": _activation(args),
        "norm": _norm(args),
        "position": _position(args),
        "tied_embeddings": not args.switch("untie-embeddings-and-output-weights"),
        "linear_bias": not args.switch("disable-bias-linear"),
        "qk_norm": args.switch("qk-layernorm"),
        "embedding_norm": args.switch("embed-layernorm"),
        "source": "Megatron-LM arguments",
    }
    if args.switch("group-query-attention"):
        table["kv_heads"] = args.integer("num-query-groups") or 1
    if args.integer("kv-channels"):
        table["head_dim"] = args.integer("kv-channels")
    if args.switch("add-qkv-bias"):
        table["qkv_bias"] = True
    rates = [args.number("hidden-dropout"), args.number("attention-dropout")]
    if None in rates:
        args.assumed.append("dropout 0.1, Megatron's default, where --hidden-dropout or --attention-dropout is left out")
    table["dropout"] = any(rate is None or rate > 0 for rate in rates)
    if window := _window(args):
        table |= {"window": window, "window_pattern": windows_of(args, table["layers"])}
    if "bert" in _program(args):
        table["causal"] = False
        args.assumed.append("an encoder, by its program's name: attention sees all tokens; BERT's pooler and heads are left out")
    table |= mixture_of(args, table["layers"]) | latent_of(args) | hybrid_of(args, table["layers"], hidden)
    table |= {"attention_gate": args.switch("attention-output-gate"), "moe_latent": args.integer("moe-latent-size")}
    if further := args.integer("mtp-num-layers"):
        table["mtp_layers"] = further
    if numerics := numerics_of(args):
        table["numerics"] = numerics
    table = {key: value for key, value in table.items() if value is not None}
    return load_model(table)


def _activation(args: Arguments) -> str:
    flags = {"swiglu": "swiglu", "quick-geglu": "geglu", "squared-relu": "squared_relu"}
    return next((ours for flag, ours in flags.items() if args.switch(flag)), "gelu")


def _program(args: Arguments) -> str:
    """The name of the program that the flags are for, in lower case, without its folder."""
    return args.program.rpartition("/")[2].lower()


def _vocab(args: Arguments) -> int:
    """The vocabulary: stated, or that of the tokenizer's type or name, or the usual one."""
    for flag in ("vocab-size", "padded-vocab-size"):
        if size := args.integer(flag):
            return size
    patched, extra = args.text("patch-tokenizer-type"), args.integer("extra-vocab-size")
    kind, name = args.text("tokenizer-type"), " ".join(args.words_of("tokenizer-model") or [])
    if kind is None and args.has("merge-file"):
        kind = "GPT2BPETokenizer"
    if kind is None and not name and patched is None:
        kind = next((usual for word, usual in _TOKENIZERS.items() if word in _program(args)), None)
    size = vocabulary_of_type(kind) if kind is not None else None
    why = f"that of {kind}"
    if size is None and (size := vocabulary_of_name(name)) is not None:
        why = f"that of {name}"
    if size is None and patched is not None and (size := vocabulary_of_patch(patched)) is not None:
        size, why = size + (extra or 0), f"that of {patched}{' and --extra-vocab-size' if extra else ''}"
    if size is None:
        size, why = USUAL, "a guess, since the tokenizer's file is not read: check it, --set model.vocab=N"
    args.assumed.append(f"vocabulary {size}, {why} (--vocab-size left out)")
    return size


def _norm(args: Arguments) -> str:
    name = args.text("normalization") or "LayerNorm"
    norms = {"layernorm": "layernorm", "rmsnorm": "rmsnorm"}
    if name.lower() not in norms:
        raise SpecError("--normalization", name, "LayerNorm, RMSNorm")
    args.switch("apply-layernorm-1p")
    return norms[name.lower()]


def _position(args: Arguments) -> str:
    kind, without = args.text("position-embedding-type"), args.switch("no-position-embedding")
    if args.switch("use-rotary-position-embeddings"):
        return "rope"
    if without and kind is None:
        return "none"
    positions = {
        "learned_absolute": "learned",
        "absolute": "learned",
        "rope": "rope",
        "rotary": "rope",
        "yarn": "rope",
        "mrope": "rope",
        "alibi": "alibi",
        "none": "none",
    }
    if kind is not None and kind.lower() not in positions:
        raise SpecError("--position-embedding-type", kind, ", ".join(sorted(positions)))
    return positions[(kind or "learned_absolute").lower()]


def _window(args: Arguments) -> int | None:
    window = args.text("window-size")
    if window is None:
        return None
    numbers = re.findall(r"-?\d{1,9}", window)
    if not numbers or int(numbers[0]) < 1:
        raise SpecError("--window-size", window, "left,right in tokens, such as 4096,0")
    return int(numbers[0]) + 1


def _plan(args: Arguments, model: Model, on: Job | None, stated: Stated) -> Plan:
    tp, pp, cp = (args.integer(f"{axis}-parallel-size") or 1 for axis in ("tensor-model", "pipeline-model", "context"))
    gpus = _gpus(args, on, stated)
    micro_batch = args.required_count("micro-batch-size")
    dp = gpus // (tp * pp * cp) if gpus else None
    if gpus and (dp is None or dp * tp * pp * cp != gpus):
        raise SpecError("world size", gpus, f"a multiple of tp*pp*cp = {tp * pp * cp}", "--set cluster.gpus=N says on how many.")
    batch = args.integer("global-batch-size")
    if batch is None:
        if dp is None:
            raise SpecError("--global-batch-size", Nothing(), "a whole number of 1 or more", NO_GPUS)
        batch = micro_batch * dp
        args.assumed.append(f"global batch {batch}: one micro batch for each data-parallel rank (--global-batch-size left out)")
    stages, vpp = layers_of(args, model.layers, pp)
    if (cuts := cuts_of(args, pp)) is not None:
        stages, vpp = cuts, len(cuts) // pp
    table: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "vpp": vpp,
        "dp": dp,
        "micro_batch": micro_batch,
        "global_batch": batch,
        "seq": args.required_count("seq-length"),
        "sequence_parallel": args.switch("sequence-parallel") and tp > 1,
        "sharding": _sharding(args),
        "stages": stages,
        "offload": offload_of(args),
        **context_of(args, cp),
        **expert_axes(args, tp),
        **_recompute(args),
    }
    return plan_of(table)


def _gpus(args: Arguments, on: Job | None, stated: Stated) -> int | None:
    """GPUs that the user states, the flags, the launcher or the machine, in this order.

    A launcher that starts fewer than one replica needs is an example that a user scales up: as many as that needs count then, or
    those of a job that is the machine.
    """
    if gpus := args.integer("world-size"):
        return gpus
    tp, pp, cp = (args.integer(f"{axis}-parallel-size") or 1 for axis in ("tensor-model", "pipeline-model", "context"))
    replica = tp * pp * cp
    experts = (args.integer("expert-model-parallel-size") or 1) * (args.integer("expert-tensor-parallel-size") or tp) * pp
    started = args.launcher.total
    if started is None:
        return stated.gpus_of(args.launcher, on, args.assumed, math.lcm(replica, experts))
    gpus = on.cluster.gpus if on else stated.gpus
    if started >= replica or gpus is None:
        return started
    if stated.node is not None:
        return stated.gpus_on(on, args.assumed, math.lcm(replica, experts))
    note = f"{gpus} GPUs, the machine's: the launcher's {started} hold no replica of tp*pp*cp = {replica}"
    if note not in args.assumed:
        args.assumed.append(note)
    return gpus


def _sharding(args: Arguments) -> str:
    stage = args.integer("zero-stage")
    if stage is not None:
        if stage > 3:
            raise SpecError("--zero-stage", stage, "0, 1, 2 or 3")
        return "none" if stage == 0 else f"zero{stage}"
    strategies = {"no_shard": "none", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "fsdp"}
    strategy = args.text("data-parallel-sharding-strategy")
    if strategy is not None and strategy not in strategies:
        raise SpecError("--data-parallel-sharding-strategy", strategy, ", ".join(strategies))
    if args.switch("use-torch-fsdp2"):
        return "fsdp"
    if args.switch("use-megatron-fsdp"):  # Megatron's own data parallelism does not look at the strategy
        return strategies[strategy or "optim_grads_params"]
    return "zero1" if args.switch("use-distributed-optimizer") else "none"


def _recompute(args: Arguments) -> dict[str, Any]:
    granularity = args.text("recompute-granularity")
    if granularity is not None and granularity not in ("full", "selective"):
        raise SpecError("--recompute-granularity", granularity, "full, selective")
    if args.switch("recompute-activations"):
        granularity = granularity or "selective"
    method = args.text("recompute-method")
    if args.switch("recompute-full") or granularity is None and method is not None:
        granularity = "full"
    count = args.integer("recompute-num-layers")
    fields: dict[str, Any] = {"recompute": granularity or "none"}
    if granularity == "full" and method == "block" and count is not None:
        fields["recompute_layers"] = count
    elif count not in (None, 1):
        args.assumed.append(f"every layer recomputes (--recompute-num-layers {count} is how many share one checkpoint)")
    modules = args.words_of("recompute-modules")
    if granularity == "selective" and modules and modules != ["core_attn"]:
        known = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act")
        if "shared_experts" in modules:
            args.assumed.append("shared experts are kept (--recompute-modules shared_experts)")
        kept = [name for name in modules if name != "shared_experts"]
        if unknown := [name for name in kept if name not in known]:
            raise SpecError("--recompute-modules", unknown[0], ", ".join((*known, "shared_experts")))
        fields["recompute_modules"] = list(dict.fromkeys(kept)) or ["core_attn"]
    return fields


def _runtime(args: Arguments) -> Runtime:
    half = "fp16" if args.switch("fp16") else "bf16" if args.switch("bf16") else "fp32"
    fields: dict[str, Any] = {"weight_dtype": half, **precision_of(args, half)}
    if args.switch("accumulate-allreduce-grads-in-fp32") or half in ("bf16", "fp32"):
        fields["gradient_dtype"] = fields["reduce_dtype"] = "fp32"
    else:
        fields["gradient_dtype"] = fields["reduce_dtype"] = half
    if args.switch("grad-reduce-in-bf16"):
        fields["gradient_dtype"] = fields["reduce_dtype"] = "bf16"
    fields |= {
        "overlap_grad_reduce": args.switch("overlap-grad-reduce"),
        "overlap_tp": args.switch("tp-comm-overlap"),
        "overlap_param_gather": args.switch("overlap-param-gather"),
    }
    interleaved = args.integer("num-layers-per-virtual-pipeline-stage") or args.integer("num-virtual-stages-per-pipeline-rank")
    wanted = args.switch("overlap-p2p-communication") or bool(interleaved)
    fields["overlap_p2p"] = wanted and not args.switch("no-overlap-p2p-communication")
    for flag, field in (
        ("no-gradient-accumulation-fusion", "fused_wgrad"),
        ("no-bias-gelu-fusion", "fused_activation"),
        ("no-bias-swiglu-fusion", "fused_activation"),
        ("no-rope-fusion", "fused_rope"),
        ("no-bias-dropout-fusion", "fused_dropout_add"),
        ("no-async-tensor-model-parallel-allreduce", "overlap_tp_dgrad"),
    ):
        if args.switch(flag):
            fields[field] = False
    fields["fused_cross_entropy"] = args.switch("cross-entropy-loss-fusion")
    if args.text("cross-entropy-fusion-impl") == "te" and fields["fused_cross_entropy"]:
        fields["fp32_logits"] = False
    fields |= _kernels(args) | dispatch_of(args)
    # Transformer Engine fuses experts' linear layers with what lies between them in MXFP8, and keeps other formats as they are.
    fields["moe_fused_mlp"] = args.switch("use-transformer-engine-op-fuser") and fields["precision"] == "mxfp8" and is_mixture(args)
    if args.integer("make-vocab-size-divisible-by"):
        fields["pad_vocab"] = args.integer("make-vocab-size-divisible-by")
    if args.integer("ddp-bucket-size"):
        fields["bucket"] = float((args.integer("ddp-bucket-size") or 0) * (4 if fields["reduce_dtype"] == "fp32" else 2))
    fields |= optimizer_of(args)
    if args.software is not None:
        name, version = args.software
        args.assumed.append(f"software {name} {version}")
        return load_runtime(name, version=version, **fields)
    name = "megatron-deepspeed" if args.switch("deepspeed") else "megatron-lm" if args.old_names else "megatron-core"
    old = ", ".join(f"--{flag}" for flag in args.old_names)
    args.assumed.append(f"software {name}" + (f" ({old} is its spelling)" if old else ""))
    return load_runtime(name, **fields)


def _kernels(args: Arguments) -> dict[str, Any]:
    """Attention kernel and launch mode, where the flags decide them."""
    fields: dict[str, Any] = {}
    if args.switch("use-flash-attn") or args.text("transformer-impl") == "transformer_engine":
        fields["attention"] = "flash"
    elif args.text("transformer-impl") == "local":
        fields["attention"] = "unfused" if args.switch("no-masked-softmax-fusion") else "fused_softmax"
    return fields | graphs_of(args)


def _job(args: Arguments, model: Model, plan: Plan, runtime: Runtime, on: Job, stated: Stated) -> Job:
    gpus = _gpus(args, on, stated) or on.cluster.gpus
    cluster = on.cluster.model_copy(update={"gpus": gpus})
    tokens = on.tokens
    if samples := args.integer("train-samples"):
        tokens = float(samples * plan.seq)
    elif iterations := args.integer("train-iters"):
        tokens = float(iterations * plan.global_batch * plan.seq)
    return check(
        Job(
            name=model.name,
            model=model,
            plan=plan,
            runtime=runtime,
            cluster=cluster,
            tokens=tokens,
            seed=on.seed,
            source="Megatron-LM arguments",
        )
    )
