"""A job as a script with Megatron-LM's flags, one a line (names of `formats.jobs.megatron.flags`); what they cannot say is
listed.

Flags of a program: as a table, changed where a job changed, and as a script that a shell takes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.exports.exporters import Written
from windtunnel.exports.tables import left_out
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.megatron.importer import from_arguments
from windtunnel.formats.jobs.megatron.numerics import numerics_flags
from windtunnel.spec import Job, Model, Plan, Runtime
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.mixer import MIXERS

_ACTIVATIONS = {"swiglu": "--swiglu", "geglu": "--quick-geglu", "squared_relu": "--squared-relu"}
_POSITIONS = {"learned": "learned_absolute", "rope": "rope", "none": "none"}


def export(job: Job, options: dict[str, str], source: Imported | None = None) -> Written:
    """A script with the flags of a job; where the job was read from flags, all of them, with what has changed since.

    SpecError for an option, and for a model that is a graph of kernels.
    """
    if options:
        raise SpecError("--option", next(iter(options)), "no option: megatron has none")
    if isinstance(job.model, GraphModel):
        raise SpecError("JOB", job.model.name, "a decoder: Megatron-LM has no flags for a graph of kernels")
    line = None if source is None else source.command_line
    changed: tuple[str, ...] = ()
    if source is None or line is None or isinstance(source.model, GraphModel):
        flags, program = by_name(job_flags(job)), "pretrain_gpt.py"
        if job.tokens:
            flags["train-iters"] = (str(round(job.tokens / (job.plan.global_batch * job.plan.seq))),)
    else:
        was = job.model_copy(
            update={"model": source.model, "plan": source.plan or job.plan, "runtime": source.runtime or job.runtime}
        )
        flags = change_flags(line.stated, by_name(job_flags(was)), by_name(job_flags(job)))
        changed, program = differences(line.written, flags), line.program or "pretrain_gpt.py"
        flags = {line.spelled.get(name, name) if words == line.written.get(name) else name: words for name, words in flags.items()}
    nodes = -(-job.cluster.gpus // job.cluster.node.gpus)
    launch = f"torchrun --nnodes {nodes} --nproc-per-node {min(job.cluster.gpus, job.cluster.node.gpus)} {program}"
    text = script(flags, launch)
    return Written(
        {"launch.sh": text}, (*left_out(job, from_arguments(text, "export")), *_unsaid(job.model, flags)), changed=changed
    )


def job_flags(job: Job) -> list[str]:
    """All flags that a job of a decoder fixes."""
    assert not isinstance(job.model, GraphModel)
    return [*model_flags(job.model), *plan_flags(job), *runtime_flags(job.runtime, job)]


def _unsaid(model: Model, flags: Flags) -> list[str]:
    """What Megatron-LM would take a default for, which may train another model."""
    if model.position != "rope" or "rotary-base" in flags:
        return []
    return ["the rotary base, which the source of the model does not state: Megatron-LM takes 10000 without --rotary-base"]


def model_flags(model: Model) -> list[str]:
    """Flags of the network."""
    flags = [
        f"--num-layers {model.layers}",
        f"--hidden-size {model.hidden}",
        f"--ffn-hidden-size {model.ffn}",
        f"--num-attention-heads {model.heads}",
        f"--vocab-size {model.vocab}",
        f"--max-position-embeddings {model.max_seq}",
        f"--normalization {'RMSNorm' if model.norm == 'rmsnorm' else 'LayerNorm'}",
        f"--position-embedding-type {_POSITIONS.get(model.position, 'rope')}",
    ]
    if model.groups != model.heads:
        flags += ["--group-query-attention", f"--num-query-groups {model.groups}"]
    if model.head_dim is not None and not model.latent:
        flags.append(f"--kv-channels {model.head_dim}")
    for flag, on in (
        (_ACTIVATIONS.get(model.activation), True),
        ("--untie-embeddings-and-output-weights", not model.tied_embeddings),
        ("--disable-bias-linear", not model.linear_bias),
        ("--add-qkv-bias", model.attention_bias and not model.linear_bias),
        ("--qk-layernorm", model.qk_norm),
        ("--embed-layernorm", model.embedding_norm),
        ("--attention-output-gate", model.attention_gate),
    ):
        if flag and on:
            flags.append(flag)
    rate = 0.1 if model.dropout else 0.0
    flags += [f"--hidden-dropout {rate}", f"--attention-dropout {rate}"]
    if model.window is not None:
        flags.append(f"--window-size {model.window - 1},0")
        if not all(kind.local for kind in model.kinds):
            flags.append(f"--window-attn-skip-freq {_frequency([kind.local for kind in model.kinds])}")
    if model.mtp_layers:
        flags.append(f"--mtp-num-layers {model.mtp_layers}")
    flags += numerics_flags(model.numerics, bool(model.experts))
    return flags + _latent_flags(model) + _expert_flags(model) + _hybrid_flags(model)


def _latent_flags(model: Model) -> list[str]:
    if not model.latent:
        return []
    flags = ["--multi-latent-attention", f"--kv-lora-rank {model.kv_lora_rank}"]
    flags += [f"--q-lora-rank {model.q_lora_rank}"] if model.q_lora_rank else []
    return [
        *flags,
        f"--qk-head-dim {model.qk_nope_dim}",
        f"--qk-pos-emb-head-dim {model.qk_rope_dim}",
        f"--v-head-dim {model.v_dim}",
    ]


def _expert_flags(model: Model) -> list[str]:
    if not model.experts:
        return []
    flags = [
        f"--num-experts {model.experts}",
        f"--moe-ffn-hidden-size {model.expert_width}",
        f"--moe-router-topk {model.top_k}",
        f"--moe-router-score-function {model.router}",
    ]
    if model.shared_ffn:
        flags.append(f"--moe-shared-expert-intermediate-size {model.shared_ffn}")
    if model.moe_latent:
        flags.append(f"--moe-latent-size {model.moe_latent}")
    if model.router_groups > 1:
        flags += [f"--moe-router-num-groups {model.router_groups}", f"--moe-router-group-topk {model.router_top_groups}"]
    if model.balance == "bias":
        flags.append("--moe-router-enable-expert-bias")
    elif model.balance == "none":
        flags.append("--moe-router-load-balancing-type none")
    experts = [kind.experts for kind in model.kinds]
    if not all(experts) and not model.one_module_layers:
        flags.append(f"--moe-layer-freq {_frequency(experts)}")
    return flags


def _hybrid_flags(model: Model) -> list[str]:
    """A pattern of one module a layer, which Megatron writes letter by letter."""
    if not model.one_module_layers:
        return []
    text = "".join("E" if kind.experts else MIXERS[kind.mixer].alone for kind in model.kinds)
    flags = [f"--hybrid-layer-pattern {text}"]
    if "M" in text:
        flags += [
            f"--mamba-num-heads {model.ssm_heads}",
            f"--mamba-head-dim {model.ssm_head_dim}",
            f"--mamba-num-groups {model.ssm_groups}",
            f"--mamba-state-dim {model.ssm_state}",
        ]
    return flags


def _frequency(flags: list[bool]) -> str:
    """`([0]*3+[1]*58)`: ones where a flag is on."""
    return "(" + "+".join(f"[{int(on)}]*{len(list(run))}" for on, run in groupby(flags)) + ")"


def plan_flags(job: Job) -> list[str]:
    """Flags of degrees, batches, stages, sharding and recomputation."""
    plan = job.plan
    flags = [
        f"--tensor-model-parallel-size {plan.tp}",
        f"--pipeline-model-parallel-size {plan.pp}",
        f"--context-parallel-size {plan.cp}",
        f"--micro-batch-size {plan.micro_batch}",
        f"--global-batch-size {plan.global_batch}",
        f"--seq-length {plan.seq}",
    ]
    if job.model.experts:
        flags += [f"--expert-model-parallel-size {plan.ep}", f"--expert-tensor-parallel-size {plan.etp}"]
    if plan.sequence_parallel:
        flags.append("--sequence-parallel")
    if plan.cp > 1 and job.cp_kind is not None:
        flags.append(f"--cp-comm-type {job.cp_kind}")
        if plan.cp_sizes:
            flags.append(f"--hierarchical-context-parallel-sizes {plan.cp_sizes[0]} {plan.cp_sizes[1]}")
    return [*flags, *_stage_flags(plan, job), *_sharding_flags(plan), *_recompute_flags(plan), *_offload_flags(plan)]


def _stage_flags(plan: Plan, job: Job) -> list[str]:
    if plan.stages is not None and len(set(plan.stages)) > 1 or plan.stages is not None and job.model.layers % len(plan.stages):
        parts = ["t" * count for count in plan.stages]
        parts[0], parts[-1] = f"E{parts[0]}", f"{parts[-1]}{'m' * job.model.mtp_layers}L"
        return [f"--pipeline-model-parallel-layout {'|'.join(parts)}"]
    return [f"--num-virtual-stages-per-pipeline-rank {plan.vpp}"] if plan.vpp > 1 else []


def _sharding_flags(plan: Plan) -> list[str]:
    if plan.sharding in ("none", "zero1"):
        return ["--use-distributed-optimizer"] if plan.sharding == "zero1" else []
    strategy = "optim_grads" if plan.sharding == "zero2" else "optim_grads_params"
    return ["--use-megatron-fsdp", f"--data-parallel-sharding-strategy {strategy}"]


def _recompute_flags(plan: Plan) -> list[str]:
    if plan.recompute == "selective":
        modules = " ".join(plan.recompute_modules)
        return ["--recompute-granularity selective", f"--recompute-modules {modules}"]
    if plan.recompute == "full":
        method = "uniform" if plan.recompute_layers is None else "block"
        return [
            "--recompute-granularity full",
            f"--recompute-method {method}",
            f"--recompute-num-layers {plan.recompute_layers or 1}",
        ]
    return []


def _offload_flags(plan: Plan) -> list[str]:
    flags = []
    if plan.offload.activations:
        flags += ["--cpu-offloading", f"--cpu-offloading-num-layers {plan.offload.activations}"]
    if plan.offload.optimizer == "host":
        flags += ["--optimizer-cpu-offload", f"--optimizer-offload-fraction {plan.offload.optimizer_fraction}"]
    return flags


def runtime_flags(runtime: Runtime, job: Job) -> list[str]:
    """Flags of precision, overlaps, kernels and experts."""
    flags = [f"--{runtime.weight_dtype}"] if runtime.weight_dtype != "fp32" else []
    flags += _precision_flags(runtime)
    if runtime.gradient_dtype == "bf16":
        flags.append("--grad-reduce-in-bf16")
    elif runtime.weight_dtype == "fp16" and runtime.gradient_dtype == "fp32":
        flags.append("--accumulate-allreduce-grads-in-fp32")
    switches = {
        "--overlap-grad-reduce": runtime.overlap_grad_reduce,
        "--overlap-param-gather": runtime.overlap_param_gather,
        "--tp-comm-overlap": runtime.overlap_tp,
        "--overlap-p2p-communication": runtime.overlap_p2p,
        "--no-overlap-p2p-communication": not runtime.overlap_p2p and job.plan.vpp > 1,
        "--no-gradient-accumulation-fusion": not runtime.fused_wgrad,
        "--no-bias-swiglu-fusion": not runtime.fused_activation,
        "--no-rope-fusion": not runtime.fused_rope,
        "--no-bias-dropout-fusion": not runtime.fused_dropout_add,
        "--no-async-tensor-model-parallel-allreduce": not runtime.overlap_tp_dgrad,
        "--cross-entropy-loss-fusion": runtime.fused_cross_entropy,
        "--no-masked-softmax-fusion": runtime.attention == "unfused",
    }
    flags += [flag for flag, on in switches.items() if on]
    if runtime.fused_cross_entropy and not runtime.fp32_logits:
        flags.append("--cross-entropy-fusion-impl te")
    flags.append(f"--transformer-impl {'transformer_engine' if runtime.attention == 'flash' else 'local'}")
    flags.append(f"--make-vocab-size-divisible-by {runtime.pad_vocab}")
    flags.append(f"--ddp-bucket-size {round(runtime.bucket / (4 if runtime.reduce_dtype == 'fp32' else 2))}")
    if runtime.launch == "cuda_graph":
        flags.append("--cuda-graph-impl local")
    elif runtime.graph_scope:
        flags += ["--cuda-graph-impl transformer_engine", f"--cuda-graph-scope {' '.join(runtime.graph_scope)}"]
    return [*flags, *_optimizer_flags(runtime, job), *(_dispatch_flags(runtime) if job.model.experts else [])]


def _precision_flags(runtime: Runtime) -> list[str]:
    if runtime.precision == "nvfp4":
        flags = ["--fp4-format e2m1"]
    elif runtime.precision == "mxfp8":
        flags = ["--fp8-format e4m3", "--fp8-recipe mxfp8"]
    elif runtime.precision == "fp8":
        recipe = {"current": "tensorwise", "blockwise": "blockwise"}.get(runtime.recipe, "delayed")
        flags = ["--fp8-format hybrid", f"--fp8-recipe {recipe}"]
    else:
        return []
    if runtime.fp8_param_gather and runtime.precision != "nvfp4":
        flags.append("--fp8-param-gather")
    flags += ["--fp8-dot-product-attention"] if runtime.fp8_attention else []
    flags += ["--fp8-output-proj"] if runtime.fp8_output_layer else []
    if runtime.fp8_amax_reduce == "tp":
        flags.append("--tp-only-amax-red")
    if any(runtime.bf16_layers):
        first, last = runtime.bf16_layers
        flags += ["--first-last-layers-bf16", f"--num-layers-at-start-in-bf16 {first}", f"--num-layers-at-end-in-bf16 {last}"]
    return flags


def _optimizer_flags(runtime: Runtime, job: Job) -> list[str]:
    flags: list[Any] = [f"--optimizer {runtime.optimizer}"] if runtime.optimizer != "adam" else []
    if (runtime.exp_avg_dtype, runtime.exp_avg_sq_dtype) != ("fp32", "fp32"):
        flags += [
            "--use-precision-aware-optimizer",
            f"--exp-avg-dtype {runtime.exp_avg_dtype}",
            f"--exp-avg-sq-dtype {runtime.exp_avg_sq_dtype}",
        ]
    if runtime.optimizer == "muon" and job.plan.tp > 1:
        flags.append(f"--muon-tp-mode {runtime.muon_tp}")
    return flags


def _dispatch_flags(runtime: Runtime) -> list[str]:
    kind = runtime.moe_dispatch
    flex = kind in ("deepep", "hybridep")
    flags = [f"--moe-token-dispatcher-type {'flex' if flex else kind}"]
    flags += [f"--moe-flex-dispatcher-backend {kind}"] if flex else []
    switches = {
        "--moe-grouped-gemm": runtime.moe_grouped_gemm != "modules",
        "--moe-permute-fusion": runtime.moe_permute_fusion,
        "--moe-router-fusion": runtime.moe_fused_router,
        "--moe-shared-expert-overlap": runtime.moe_shared_overlap,
        "--overlap-moe-expert-parallel-comm": runtime.moe_a2a_overlap,
        "--moe-use-legacy-grouped-gemm": runtime.moe_grouped_gemm == "one",
        "--moe-router-dtype fp32": runtime.moe_router_dtype == "fp32",
        "--moe-pad-expert-input-to-capacity": runtime.moe_pad_to_capacity,
        "--use-transformer-engine-op-fuser --moe-mlp-glu-interleave-size 32": runtime.moe_fused_mlp,
    }
    flags += [flag for flag, on in switches.items() if on]
    return flags + ([f"--moe-expert-capacity-factor {runtime.moe_capacity}"] if runtime.moe_capacity else [])


Flags = Mapping[str, tuple[str, ...]]
"""Words of each flag, by its name without dashes."""

ONE_OF = (
    {
        "num-layers-per-virtual-pipeline-stage",
        "num-virtual-stages-per-pipeline-rank",
        "pipeline-model-parallel-layout",
        "decoder-first-pipeline-num-layers",
        "decoder-last-pipeline-num-layers",
        "account-for-embedding-in-pipeline-split",
        "account-for-loss-in-pipeline-split",
    },
    {"recompute-activations", "recompute-granularity"},
    {"fp8-format", "fp4-format", "fp8-hybrid", "fp8-e4m3"},
    {"bf16", "fp16"},
    {"use-distributed-optimizer", "data-parallel-sharding-strategy", "use-torch-fsdp2", "zero-stage"},
    {"moe-token-dispatcher-type", "moe-enable-deepep"},
    {"position-embedding-type", "use-rotary-position-embeddings"},
    {"overlap-p2p-communication", "no-overlap-p2p-communication"},
    {"vocab-size", "padded-vocab-size", "tokenizer-type"},
)
"""Flags of Megatron-LM that say one thing in several ways: where one of them changes, the others go."""


def by_name(flags: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The flags of lines such as `--recompute-modules mlp moe`."""
    words = (line.split(" ") for line in flags)
    return {name.removeprefix("--"): tuple(values) for name, *values in words}


def change_flags(given: Flags, was: Flags, now: Flags) -> dict[str, tuple[str, ...]]:
    """`given`, with every flag in which `now` differs from `was`: changed, added or left out."""
    changed = dict(given)
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) == now.get(name):
            continue
        for group in ONE_OF:
            if name in group:
                for other in group - now.keys():
                    changed.pop(other, None)
        if name in now:
            changed[name] = now[name]
        else:
            changed.pop(name, None)
    return changed


def differences(old: Flags, new: Flags) -> tuple[str, ...]:
    """Lines `- --tp 4` and `+ --tp 8` of the flags in which two tables differ."""
    lines = []
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            lines += [f"- {in_shell(name, old[name])}"] if name in old else []
            lines += [f"+ {in_shell(name, new[name])}"] if name in new else []
    return tuple(lines)


def script(flags: Flags, launch: str) -> str:
    """A script of bash that calls `launch` with the flags."""
    lines = [f"  {in_shell(name, words)}" for name, words in flags.items()]
    return "\n".join(("#!/bin/bash", "ARGS=(", *lines, ")", f'{launch} "${{ARGS[@]}}"')) + "\n"


def in_shell(name: str, words: Iterable[str]) -> str:
    """A flag as a shell takes it; variables stay variables."""
    return " ".join([f"--{name}", *map(_quote_word, words)])


def _quote_word(word: str) -> str:
    if "$" not in word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")
    return f'"{escaped}"'
