"""A job as torchtitan's configuration (TOML sections, as its dumped configurations and releases up to 0.2.2 have them)."""

from __future__ import annotations

from functools import cache
from math import log2
from typing import Any

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.exports.exporters import Written
from windtunnel.exports.tables import REFUSED, differences, left_out, misses_of, rewrite
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.torchtitan import FLAVORS, SCHEDULES
from windtunnel.formats.jobs.torchtitan import import_table as from_torchtitan
from windtunnel.spec import Job, Model, load_model, names
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.files import toml_lines
from windtunnel.workload import parameter_count

_FLAVORS = {
    "llama3": ("8B", "70B", "405B"),
    "llama4": ("17bx16e", "17bx128e"),
    "qwen3": ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B"),
    "gpt_oss": ("20b", "120b"),
    "deepseek_v3": ("16B", "236B", "671B"),
}
"""Flavors by the name of the model: `torchtitan/models/*/__init__.py` of v0.2.2."""
_NAMES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B", "breadth-first": "LoopedBFS"}
_NAMES |= {"interleaved-zb": "InterleavedZeroBubble", "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}
_ATTENTION = {"bf16": "bfloat16", "fp32": "float32"}


def export(job: Job, options: dict[str, str], source: Imported | None = None) -> Written:
    """The sections of a job; where the job was read from such sections, all of their keys, with what has changed since.

    SpecError for an option, and for a graph of kernels.
    """
    if options:
        raise SpecError("--option", next(iter(options)), "no option: torchtitan has none")
    if isinstance(job.model, GraphModel):
        raise SpecError("JOB", job.model.name, "a decoder: torchtitan has no flavor for a graph of kernels")
    if source is not None and source.table is not None and not isinstance(source.model, GraphModel):
        return _rewritten(job, dict(source.table), source.model)
    table, known = _sections(job), _flavor(job.model.name)
    try:
        back = from_torchtitan(table, None, Stated(gpus=job.cluster.gpus, model=None if known else job.model))
        missing = left_out(job, back)
        if known is None:
            missing = (f"model {job.model.name}: torchtitan has no flavor of it; {_nearest_flavor(job.model)}", *missing)
    except WindtunnelError as error:
        missing = (f"a job that torchtitan's reader takes: {error}",)
    return Written({"train.toml": _text(table)}, missing)


def _rewritten(job: Job, given: dict[str, Any], model: Model) -> Written:
    """The sections that the job was read from, changed where the job is another one."""

    def read(table: dict[str, Any]) -> Imported:
        try:
            return from_torchtitan(table, None, Stated(gpus=job.cluster.gpus))
        except SpecError:  # the model was given beside it
            return from_torchtitan(table, None, Stated(gpus=job.cluster.gpus, model=model))

    def misses(table: dict[str, Any]) -> int:
        try:
            return misses_of(job, read(table), first)
        except WindtunnelError:
            return REFUSED

    first = None
    try:
        first = read(given)
        was = job.model_copy(update={"plan": first.plan, "runtime": first.runtime})
    except WindtunnelError:  # a change that the user typed makes it a job
        was = job
    before, after = _sections(was), _sections(job)
    for table in (before, after):
        table["model"] = {"converters": table["model"]["converters"]}  # flavors stay
        table["training"].pop("steps", None)
    table = rewrite(given, before, after, misses)
    return Written({"train.toml": _text(table)}, left_out(job, read(table)), changed=differences(given, table))


def _text(table: dict[str, Any]) -> str:
    return "\n".join(toml_lines(table)).lstrip() + "\n"


def _sections(job: Job) -> dict[str, Any]:
    """All sections that say something of a job."""
    assert not isinstance(job.model, GraphModel)
    name, flavor = _flavor(job.model.name) or ("custom", job.model.name)
    converters, sections = _converters(job)
    return {
        "model": {"name": name, "flavor": flavor, "converters": converters},
        "optimizer": {"name": {"adam": "AdamW", "sgd": "SGD", "muon": "Muon"}.get(job.runtime.optimizer, "AdamW")},
        "training": _training(job),
        "parallelism": _parallelism(job),
        "activation_checkpoint": _checkpointing(job),
        "compile": {"enable": job.runtime.launch == "compile"},
        **sections,
    }


def _flavor(model: str) -> tuple[str, str] | None:
    """(name, flavor) of a model of the catalogue; None where torchtitan has none."""
    return _of_model().get(model)


@cache
def _of_model() -> dict[str, tuple[str, str]]:
    """Name and flavor, as torchtitan spells them, of each model of the catalogue that it has."""
    found: dict[str, tuple[str, str]] = {}
    for name, flavors in _FLAVORS.items():
        for flavor in flavors:
            wanted = f"{name}-{flavor}".lower()
            found[FLAVORS.get(wanted, wanted.replace("_", "-"))] = (name, flavor)
    found |= {"llama3-8b": ("llama3", "8B"), "llama3-70b": ("llama3", "70B")}  # the shapes of 3.1
    return {model: flavor for model, flavor in found.items() if model in names("models")}


def _nearest_flavor(model: Model) -> str:
    """What to start from: the flavor of as many parameters, dense or with experts as the model is."""

    def distance_to(other: str) -> float:
        theirs = load_model(other)
        kind = bool(theirs.experts) != bool(model.experts) or theirs.latent != model.latent
        return abs(log2(parameter_count(theirs) / parameter_count(model))) + 8.0 * kind

    name, flavor = _of_model()[min(_of_model(), key=distance_to)]
    return f"write one with its sizes (nearest: {name} {flavor})"


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
