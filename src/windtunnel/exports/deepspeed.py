"""A job as DeepSpeed's configuration (JSON); model, sequence and other axes are the training script's."""

from __future__ import annotations

import json
from typing import Any

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.exports.exporters import Written
from windtunnel.exports.tables import REFUSED, differences, leaves, left_out, misses_of, rewrite
from windtunnel.formats.jobs.deepspeed import import_table as from_deepspeed
from windtunnel.formats.jobs.imported import Imported
from windtunnel.spec import DTYPE_BYTES, Job

_STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "hsdp": 3, "mics": 3}
_DEVICES = {"host": "cpu", "nvme": "nvme"}


_SCRIPT = "the model, the sequence, recomputation and the axes beside tp: the training script says them"


def export(job: Job, options: dict[str, str], source: Imported | None = None) -> Written:
    """The configuration of a job; where the job was read from one, all of its keys, with what has changed since. SpecError for an
    option."""
    if options:
        raise SpecError("--option", next(iter(options)), "no option: deepspeed has none")
    if source is not None and source.table is not None:
        return _rewritten(job, dict(source.table))
    config = _config(job)
    on = job.model_copy(update={"plan": job.plan.model_copy(update={"tp": 1})}) if job.plan.tp > 1 else job
    return Written({"ds_config.json": _text(config)}, (_SCRIPT, *left_out(job, from_deepspeed(config, on))))


def _rewritten(job: Job, given: dict[str, Any]) -> Written:
    """The configuration that the job was read from, changed where the job is another one. What it leaves open stays open."""

    first = from_deepspeed(given, job)

    def misses(table: dict[str, Any]) -> int:
        try:
            return misses_of(job, from_deepspeed(table, job), first)
        except WindtunnelError:
            return REFUSED

    assert first.plan is not None and first.runtime is not None
    was = job.model_copy(update={"plan": first.plan, "runtime": first.runtime})
    table = rewrite(given, _config(was), _config(job), misses)
    open_keys = [".".join(path) for path, value in leaves(table).items() if value == "auto"]
    notes = (_SCRIPT, *([f"{', '.join(open_keys)}: auto, so the trainer fills them in"] if open_keys else []))
    missing = left_out(job, from_deepspeed(table, job))
    return Written({"ds_config.json": _text(table)}, (*notes, *missing), changed=differences(given, table))


def _text(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _config(job: Job) -> dict[str, Any]:
    plan, runtime = job.plan, job.runtime
    config: dict[str, Any] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "optimizer": {"type": {"adam": "AdamW", "lamb": "Lamb", "sgd": "SGD", "muon": "Muon"}.get(runtime.optimizer, "AdamW")},
        "zero_optimization": _zero(job),
    }
    if plan.tp > 1:
        config["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.cp > 1 and job.cp_kind == "a2a":
        config["sequence_parallel_size"] = plan.cp
    half = runtime.weight_dtype
    if half != "fp32":
        config[half] = {"enabled": True}
    config["communication_data_type"] = runtime.reduce_dtype
    config["data_types"] = {"grad_accum_dtype": runtime.gradient_dtype}
    return config


def _zero(job: Job) -> dict[str, Any]:
    plan, runtime, stage = job.plan, job.runtime, _STAGES[job.plan.sharding]
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": runtime.overlap_grad_reduce,
        "contiguous_gradients": runtime.contiguous_gradients,
        "reduce_scatter": runtime.reduce_with == "reduce_scatter",
        "reduce_bucket_size": round(runtime.bucket / DTYPE_BYTES[runtime.reduce_dtype]),
    }
    if runtime.gather_bucket is not None and stage in (1, 2):
        zero["allgather_bucket_size"] = round(runtime.gather_bucket / DTYPE_BYTES[runtime.weight_dtype])
    if stage == 3:
        for name, value in (
            ("stage3_prefetch_bucket_size", runtime.prefetch_bucket),
            ("stage3_max_live_parameters", runtime.live_parameters),
            ("stage3_max_reuse_distance", runtime.reuse_distance),
            ("stage3_param_persistence_threshold", runtime.persistent_parameters),
            ("mics_shard_size", plan.shard_group if plan.sharding in ("mics", "hsdp") else None),
            ("zero_hpz_partition_size", plan.secondary_group),
        ):
            if value is not None:
                zero[name] = round(value)
        for name, flag in (
            ("zero_quantized_weights", plan.quantised_gather),
            ("zero_quantized_gradients", plan.quantised_reduce),
            ("mics_hierarchical_params_gather", plan.hierarchical_gather),
        ):
            if flag:
                zero[name] = True
    if plan.offload.optimizer in _DEVICES:
        zero["offload_optimizer"] = {"device": _DEVICES[plan.offload.optimizer], "ratio": plan.offload.optimizer_fraction}
    if plan.offload.parameters in _DEVICES and stage == 3:
        zero["offload_param"] = {"device": _DEVICES[plan.offload.parameters]}
    return zero
