"""A job as torchtitan's configuration (TOML sections, as its dumped configurations and releases up to 0.2.2 have them)."""

from __future__ import annotations

from typing import Any

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.exports.exporters import Written
from windtunnel.exports.notes import left_out
from windtunnel.formats.jobs.overrides import Stated
from windtunnel.formats.jobs.torchtitan.configuration import SCHEDULES
from windtunnel.formats.jobs.torchtitan.configuration import import_table as from_torchtitan
from windtunnel.formats.jobs.torchtitan.flavors import FLAVORS
from windtunnel.spec import Job, names
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.toml import toml_lines

_FAMILIES = ("qwen3", "gpt_oss", "llama3", "deepseek_v3", "llama4")
_NAMES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B", "breadth-first": "LoopedBFS"}
_NAMES |= {"interleaved-zb": "InterleavedZeroBubble", "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}
_ATTENTION = {"bf16": "bfloat16", "fp32": "float32"}


def export(job: Job, options: dict[str, str]) -> Written:
    """The sections of a job. SpecError for an option, and for a graph of kernels."""
    if options:
        raise SpecError("--option", next(iter(options)), "no option: torchtitan has none")
    if isinstance(job.model, GraphModel):
        raise SpecError("JOB", job.model.name, "a decoder: torchtitan has no flavor for a graph of kernels")
    known = _flavor(job.model.name)
    name, flavor = known or ("custom", job.model.name)
    converters, sections = _converters(job)
    table: dict[str, Any] = {
        "model": {"name": name, "flavor": flavor, "converters": converters},
        "optimizer": {"name": {"adam": "AdamW", "sgd": "SGD", "muon": "Muon"}.get(job.runtime.optimizer, "AdamW")},
        "training": _training(job),
        "parallelism": _parallelism(job),
        "activation_checkpoint": _checkpointing(job),
        "compile": {"enable": job.runtime.launch == "compile"},
        **sections,
    }
    try:
        back = from_torchtitan(table, None, Stated(gpus=job.cluster.gpus, model=None if known else job.model))
        missing = left_out(job, back)
        if known is None:
            missing = (f"model {job.model.name}: torchtitan has no flavor of it; write one with its sizes", *missing)
    except WindtunnelError as error:
        missing = (f"a job that torchtitan's reader takes: {error}",)
    return Written({"train.toml": "\n".join(toml_lines(table)).lstrip() + "\n"}, missing)


def _flavor(model: str) -> tuple[str, str] | None:
    """(name, flavor) of a model of the catalogue; None where torchtitan has none."""
    for known, ours in FLAVORS.items():
        if ours == model:
            name, _, flavor = known.partition("-")
            return name, flavor.upper() if name == "llama3" else flavor
    for name in _FAMILIES:
        head = name.replace("_", "-") + "-"
        if model in names("models") and model.startswith(head):
            return name, model.removeprefix(head)
    return None


def _training(job: Job) -> dict[str, Any]:
    plan, runtime = job.plan, job.runtime
    steps = max(1, round(job.tokens / (plan.global_batch * plan.seq))) if job.tokens else None
    fields: dict[str, Any] = {
        "local_batch_size": plan.micro_batch if plan.pp == 1 else plan.global_batch // job.dp,
        "global_batch_size": plan.global_batch,
        "seq_len": plan.seq,
        "steps": steps,
        "mixed_precision_param": _ATTENTION.get(runtime.weight_dtype, "bfloat16") if runtime.precision == "fp32" else "bfloat16",
        "mixed_precision_reduce": _ATTENTION.get(runtime.reduce_dtype, "float32"),
        "enable_cpu_offload": plan.offload.parameters == "host",
    }
    return {key: value for key, value in fields.items() if value is not None}


def _parallelism(job: Job) -> dict[str, Any]:
    plan, runtime = job.plan, job.runtime
    shard = max(1, (plan.shard_group or job.dp * plan.cp) // plan.cp) if plan.sharding != "none" else 1
    fields: dict[str, Any] = {
        "data_parallel_replicate_degree": job.dp // shard,
        "data_parallel_shard_degree": shard,
        "tensor_parallel_degree": plan.tp,
        "enable_sequence_parallel": plan.sequence_parallel,
        "pipeline_parallel_degree": plan.pp,
        "context_parallel_degree": plan.cp,
        "expert_parallel_degree": plan.ep,
        "expert_tensor_parallel_degree": plan.etp,
        "enable_async_tensor_parallel": runtime.overlap_tp,
        "fsdp_reshard_after_forward": "always" if runtime.reshard_after_forward else "never",
        "context_parallel_rotate_method": "alltoall" if job.cp_kind == "p2p" else "allgather",
    }
    if plan.pp > 1:
        ends = _ends(job)
        fields |= {
            "pipeline_parallel_schedule": _NAMES.get(plan.schedule_name, "1F1B"),
            "pipeline_parallel_microbatch_size": plan.micro_batch,
            "pipeline_parallel_first_stage_less_layers": ends[0],
            "pipeline_parallel_last_stage_less_layers": ends[1],
        }
        if plan.vpp > 2 and plan.schedule_name in SCHEDULES.values():
            fields["pipeline_parallel_layers_per_stage"] = -(-(job.model.layers + sum(ends)) // (plan.pp * plan.vpp))
    return fields


def _ends(job: Job) -> tuple[int, int]:
    """How many layers fewer the first and the last part have than those between."""
    stages = job.plan.stages
    if stages is None or len(stages) < 3:
        return (0, 0)
    usual = max(stages[1:-1])
    return max(0, usual - stages[0]), max(0, usual - stages[-1])


def _checkpointing(job: Job) -> dict[str, Any]:
    plan = job.plan
    if plan.recompute == "full" and plan.recompute_layers:
        each = -(-job.model.layers // (plan.pp * plan.vpp))
        return {"mode": "selective", "selective_ac_option": str(max(1, each // plan.recompute_layers))}
    return {"mode": plan.recompute} if plan.recompute in ("none", "full") else {"mode": "selective", "selective_ac_option": "op"}


def _converters(job: Job) -> tuple[list[str], dict[str, Any]]:
    runtime = job.runtime
    if runtime.precision == "mxfp8":
        return ["quantize.linear.mx"], {}
    if runtime.precision != "fp8":
        return [], {}
    float8 = {
        "recipe_name": {"rowwise": "rowwise"}.get(runtime.recipe, "tensorwise"),
        "enable_fsdp_float8_all_gather": runtime.fp8_param_gather,
    }
    return ["quantize.linear.float8"], {"quantize": {"linear": {"float8": float8}}}
