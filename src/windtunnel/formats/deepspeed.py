"""A DeepSpeed configuration (ds_config.json): batch, precision, ZeRO and overlaps over a job that says the rest.

Keys and defaults: DeepSpeed's configuration reference (deepspeed.ai/docs/config-json), `runtime/zero/config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.imported import Imported
from windtunnel.formats.keys import Keys
from windtunnel.spec import DTYPE_BYTES, Job, Plan, check, load_runtime

FORMAT = "deepspeed"
TELLING = frozenset({"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "zero_optimization"})
"""Keys that no other JSON that is read here has."""

_OPTIMIZERS = {"adam": "adam", "adamw": "adam", "fusedadam": "adam", "lamb": "lamb", "fusedlamb": "lamb", "sgd": "sgd"}
_DTYPES = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "bfp16": "bf16", "float32": "fp32", "float16": "fp16",
           "bfloat16": "bf16"}


def from_deepspeed(config: Mapping[str, Any], on: Job | None) -> Imported:
    """Plan and runtime of `config` over those of `on`, whose model, sequence, machine and other axes stay.

    Raises SpecError without `on`, and for what is not modelled.
    """
    if on is None:
        raise SpecError("--on", Nothing(), "a job: a DeepSpeed configuration says neither the model nor the machine",
                        "For example --on llama3-8b-8xh100.")
    keys, assumed = Keys(config), list[str]()
    plan = _plan(keys, on, assumed)
    runtime = load_runtime("deepspeed", **_runtime(keys, on, assumed))
    job = check(Job(name=on.name, model=on.model, plan=plan, runtime=runtime, cluster=on.cluster, tokens=on.tokens, seed=on.seed,
                    source="DeepSpeed configuration"))
    assumed.append(f"model, sequence of {plan.seq}, recompute {plan.recompute} and machine of {on.name}")
    built = tuple(sorted(path for path in keys.used if keys.get(path) is not None))
    return Imported(FORMAT, on.model, plan, runtime, job, built, keys.left_over(), tuple(assumed))


def _plan(keys: Keys, on: Job, assumed: list[str]) -> Plan:
    fields: dict[str, Any] = {name: getattr(on.plan, name) for name in Plan.model_fields}
    if tp := keys.count("tensor_parallel.autotp_size"):
        fields["tp"] = tp
    if keys.get("sequence_parallel_size") not in (None, 1):
        fields["cp"] = keys.count("sequence_parallel_size")
    split = fields["tp"] * fields["cp"] * fields["pp"]
    dp = max(1, on.cluster.gpus // split)
    micro, steps, total = (keys.count(path) for path in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                                                         "train_batch_size"))
    if micro is None:
        micro = total // (dp * steps) if total and steps else fields["micro_batch"]
        assumed.append(f"micro batch {micro} (train_micro_batch_size_per_gpu is left out or auto)")
    if total is None:
        total = micro * dp * (steps or max(1, fields["global_batch"] // (micro * dp)))
        assumed.append(f"global batch {total} on {dp} data-parallel ranks (train_batch_size is left out or auto)")
    if steps is not None and total != micro * dp * steps:
        raise SpecError("train_batch_size", total, f"micro batch {micro} x accumulation {steps} x {dp} data-parallel ranks = "
                        f"{micro * dp * steps}")
    stage = keys.whole("zero_optimization.stage") or 0
    if stage not in (0, 1, 2, 3):
        raise SpecError("zero_optimization.stage", stage, "0, 1, 2 or 3")
    fields |= {"dp": None, "micro_batch": micro, "global_batch": total, "sharding": f"zero{stage}" if stage else "none",
               "shard_group": keys.count("zero_optimization.mics_shard_size")}
    for name in ("offload_optimizer", "offload_param"):
        if (device := keys.text(f"zero_optimization.{name}.device")) not in (None, "none"):
            raise SpecError(f"zero_optimization.{name}.device", device, "none", "Offload is not read yet.")
    if keys.get("activation_checkpointing") is not None:
        assumed.append(f"recompute {on.plan.recompute}: the training script, not activation_checkpointing, says which layers do")
    return Plan(**fields)


def _runtime(keys: Keys, on: Job, assumed: list[str]) -> dict[str, Any]:
    half = next((name for name, paths in (("bf16", ("bf16.enabled", "bfloat16.enabled")), ("fp16", ("fp16.enabled",)))
                 if any(keys.get(path) in (True, "auto") for path in paths)), "fp32")
    if "auto" in (keys.get("bf16.enabled"), keys.get("fp16.enabled")):
        assumed.append(f"precision {half} (enabled is auto)")
    fields: dict[str, Any] = {"precision": half, "weight_dtype": half, "gradient_dtype": half, "reduce_dtype": half}
    fields["master_weights"] = half != "fp32"
    for path, field in (("data_types.grad_accum_dtype", "gradient_dtype"), ("communication_data_type", "reduce_dtype")):
        if (said := keys.text(path)) is not None:
            if said not in _DTYPES:
                raise SpecError(path, said, ", ".join(_DTYPES))
            fields[field] = _DTYPES[said]
    overlap = keys.typed("zero_optimization.overlap_comm", bool)
    if overlap is None:
        overlap = keys.whole("zero_optimization.stage") == 3
    fields |= {"overlap_grad_reduce": overlap, "overlap_param_gather": overlap and keys.whole("zero_optimization.stage") == 3}
    if keys.get("zero_optimization.reduce_scatter") is False:
        fields["reduce_with"] = "all_reduce"
    elements = keys.count("zero_optimization.reduce_bucket_size") or 500_000_000
    fields["bucket"] = elements * DTYPE_BYTES[fields["reduce_dtype"]]
    kind = (keys.text("optimizer.type") or "Adam").lower()
    if kind not in _OPTIMIZERS:
        assumed.append(f"optimizer adam in place of {kind}")
    fields["optimizer"] = _OPTIMIZERS.get(kind, "adam")
    if on.runtime.framework == "deepspeed":
        fields["launch"] = on.runtime.launch
    return fields
