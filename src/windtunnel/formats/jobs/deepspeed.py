"""A DeepSpeed configuration (ds_config.json): batch, precision, ZeRO and overlaps over a job that says the rest.

Keys and defaults: DeepSpeed's configuration reference (deepspeed.ai/docs/config-json), `runtime/zero/config.py`.

The DeepSpeed file that a configuration of Accelerate, the Trainer or Axolotl names, opened where it lies beside that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.spec import DTYPE_BYTES, Job, Plan, check, load_runtime
from windtunnel.spec.loading.explain import explain
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.offload import Offload

FORMAT = "deepspeed"
TELLING = frozenset({"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "zero_optimization"})
"""Keys that no other JSON that is read here has."""

_OPTIMIZERS = {
    "adam": "adam",
    "adamw": "adam",
    "fusedadam": "adam",
    "lamb": "lamb",
    "fusedlamb": "lamb",
    "sgd": "sgd",
    "muon": "muon",
}
_DTYPES = {
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "bfp16": "bf16",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
}


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table has DeepSpeed's keys, and is no model of Hugging Face, whose configuration may quote them."""
    return bool(TELLING & set(table)) and "model_type" not in table


def import_table(config: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Plan and runtime of `config` over those of `on`, whose model, sequence, machine and other axes stay. Nothing of what a user
    has `stated` is a key of DeepSpeed's.

    Raises SpecError without `on`, and for what is not modelled.
    """
    if on is None:
        raise SpecError(
            "--on",
            Nothing(),
            "a job: a DeepSpeed configuration says neither the model nor the machine",
            "For example --on llama3-8b-8xh100.",
        )
    assumed = list[str]()
    keys = Keys(first_of_lists(config, "", assumed) if "autotuning" in config else config)
    plan = _plan(keys, on, assumed)
    runtime = load_runtime("deepspeed", **_runtime(keys, on, assumed))
    job = check(
        Job(
            name=on.name,
            model=on.model,
            plan=plan,
            runtime=runtime,
            cluster=on.cluster,
            tokens=on.tokens,
            seed=on.seed,
            source="DeepSpeed configuration",
        )
    )
    assumed.append(f"model, sequence of {plan.seq}, recompute {plan.recompute} and machine of {on.name}")
    return Imported(FORMAT, on.model, plan, runtime, job, keys.built(), keys.left_over(), tuple(assumed), table=config)


def implied_ranks(config: Mapping[str, Any]) -> int | None:
    """Data-parallel ranks that the batch of a configuration implies: train_batch_size over micro batch and accumulation steps.

    A micro batch or an accumulation that is left out counts as 1; None without a batch, or where it does not divide.
    """
    keys = Keys(config)
    micro, steps, total = (
        keys.count(path) for path in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    )
    share = (micro or 1) * (steps or 1)
    return None if total is None or total % share else total // share


def first_of_lists(table: Mapping[str, Any], head: str, assumed: list[str]) -> dict[str, Any]:
    """A configuration with the first value of each list that the autotuner would try."""
    filled: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            value = first_of_lists(value, f"{head}{key}.", assumed)
        elif isinstance(value, list) and value and all(isinstance(one, (int, float, bool)) for one in value) and key != "betas":
            assumed.append(f"{head}{key} {str(value[0]).lower()}, the first of those that the autotuner would try")
            value = value[0]
        filled[key] = value
    return filled


def _plan(keys: Keys, on: Job, assumed: list[str]) -> Plan:
    fields: dict[str, Any] = {name: getattr(on.plan, name) for name in Plan.model_fields}
    if tp := keys.count("tensor_parallel.autotp_size"):
        fields["tp"] = tp
    if (ranks := keys.count("sequence_parallel_size") or 1) > 1:  # DeepSpeed-Ulysses
        fields |= {"cp": ranks, "cp_kind": "a2a", "cp_sizes": None}
    split = fields["tp"] * fields["cp"] * fields["pp"]
    dp = max(1, on.cluster.gpus // split)
    micro, steps, total = (
        keys.count(path) for path in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    )
    if micro is None:
        micro = max(1, total // (dp * steps)) if total and steps else fields["micro_batch"]
        assumed.append(f"micro batch {micro} (train_micro_batch_size_per_gpu is left out or auto)")
    if total is None:
        total = micro * dp * (steps or max(1, fields["global_batch"] // (micro * dp)))
        assumed.append(f"global batch {total} on {dp} data-parallel ranks (train_batch_size is left out or auto)")
    if steps is not None and total != micro * dp * steps:
        raise SpecError(
            "train_batch_size",
            total,
            f"micro batch {micro} x accumulation {steps} x {dp} data-parallel ranks = {micro * dp * steps}",
        )
    stage = keys.whole_number("zero_optimization.stage") or 0
    if stage not in (0, 1, 2, 3):
        raise SpecError("zero_optimization.stage", stage, "0, 1, 2 or 3")
    fields |= {
        "dp": None,
        "micro_batch": micro,
        "global_batch": total,
        "sharding": f"zero{stage}" if stage else "none",
        "offload": offload_of(keys, stage, assumed),
        **zero_plus_of(keys, stage),
    }
    if keys.get("activation_checkpointing") is not None:
        assumed.append(f"recompute {on.plan.recompute}: the training script, not activation_checkpointing, says which layers do")
    try:
        return Plan(**fields)
    except ValidationError as error:  # a number beyond what any plan may have
        raise explain(error, Plan, "plan") from None


def zero_plus_of(keys: Keys, stage: int) -> dict[str, Any]:
    """MiCS and ZeRO++: groups and formats of stage 3."""
    group, second = (keys.count(f"zero_optimization.{name}") for name in ("mics_shard_size", "zero_hpz_partition_size"))
    fields: dict[str, Any] = {"shard_group": group, "secondary_group": second if (second or 1) > 1 else None}
    for name, field in (
        ("zero_quantized_weights", "quantised_gather"),
        ("zero_quantized_gradients", "quantised_reduce"),
        ("mics_hierarchical_params_gather", "hierarchical_gather"),
    ):
        fields[field] = keys.flag(f"zero_optimization.{name}")
    if stage == 3 and group is not None:
        fields["sharding"] = "mics"
    return fields


def offload_of(keys: Keys, stage: int, assumed: list[str]) -> Offload:
    """Optimizer state and parameters on host or NVMe (ZeRO-Offload, ZeRO-Infinity)."""
    fields: dict[str, Any] = {}
    for name, field in (("offload_optimizer", "optimizer"), ("offload_param", "parameters")):
        device = keys.text(f"zero_optimization.{name}.device") or "none"
        if device not in ("none", "cpu", "nvme"):
            raise SpecError(f"zero_optimization.{name}.device", device, "none, cpu, nvme")
        fields[field] = "host" if device == "cpu" else device
    if fields["parameters"] != "none" and stage < 3:
        assumed.append("parameters on the device: DeepSpeed offloads them at stage 3 only")
        fields["parameters"] = "none"
    ratio = keys.get_typed("zero_optimization.offload_optimizer.ratio", float)
    if ratio is not None and fields["optimizer"] != "none":
        if not 0.0 < ratio <= 1.0:
            raise SpecError("zero_optimization.offload_optimizer.ratio", ratio, "a share above 0, at most 1")
        fields["optimizer_fraction"] = float(ratio)
    return Offload(**fields)


def sharding_fields(keys: Keys, reduced: str, half: str, hidden: int | None = None) -> dict[str, Any]:
    """Overlaps and buckets of ZeRO. `reduced`, `half`: dtypes of gradients on the network and of weights. `hidden`: the model's
    width, from which transformers fills in "auto" (integrations/deepspeed.py, trainer_config_finalize)."""
    fields: dict[str, Any] = {}
    overlap = keys.get_typed("zero_optimization.overlap_comm", bool)
    if overlap is None:
        overlap = keys.whole_number("zero_optimization.stage") == 3
    fields |= {
        "overlap_grad_reduce": overlap,
        "overlap_param_gather": overlap and keys.whole_number("zero_optimization.stage") == 3,
    }
    if keys.get("zero_optimization.reduce_scatter") is False:
        fields["reduce_with"] = "all_reduce"
    square = None if hidden is None else hidden * hidden
    automatic = {
        "reduce_bucket_size": square,
        "stage3_prefetch_bucket_size": square and int(0.9 * square),
        "stage3_param_persistence_threshold": hidden and 10 * hidden,
    }

    def elements(name: str) -> int | None:
        path = f"zero_optimization.{name}"
        return automatic.get(name) if keys.get(path) == "auto" else keys.whole_number(path)

    fields["bucket"] = (elements("reduce_bucket_size") or 500_000_000) * DTYPE_BYTES[reduced]
    for name, field, width in (
        ("stage3_prefetch_bucket_size", "prefetch_bucket", 1.0),
        ("stage3_max_live_parameters", "live_parameters", 1.0),
        ("stage3_max_reuse_distance", "reuse_distance", 1.0),
        ("stage3_param_persistence_threshold", "persistent_parameters", 1.0),
        ("allgather_bucket_size", "gather_bucket", DTYPE_BYTES[half]),
    ):
        if (size := elements(name)) is not None:
            if size < (0 if field in ("prefetch_bucket", "reuse_distance", "persistent_parameters") else 1):
                raise SpecError(f"zero_optimization.{name}", size, "a number of elements")
            fields[field] = size * width
    contiguous = keys.get_typed("zero_optimization.contiguous_gradients", bool)
    if contiguous is not None:
        fields["contiguous_gradients"] = contiguous
    return fields


def _runtime(keys: Keys, on: Job, assumed: list[str]) -> dict[str, Any]:
    half = next(
        (
            name
            for name, paths in (("bf16", ("bf16.enabled", "bfloat16.enabled")), ("fp16", ("fp16.enabled",)))
            if any(keys.get(path) in (True, "auto") for path in paths)
        ),
        "fp32",
    )
    if "auto" in (keys.get("bf16.enabled"), keys.get("fp16.enabled")):
        assumed.append(f"precision {half} (enabled is auto)")
    fields: dict[str, Any] = {"precision": half, "weight_dtype": half, "gradient_dtype": half, "reduce_dtype": half}
    fields["master_weights"] = half != "fp32"
    for path, field in (("data_types.grad_accum_dtype", "gradient_dtype"), ("communication_data_type", "reduce_dtype")):
        if (dtype := keys.text(path)) is not None:
            if dtype not in _DTYPES:
                raise SpecError(path, dtype, ", ".join(_DTYPES))
            fields[field] = _DTYPES[dtype]
    fields |= sharding_fields(keys, fields["reduce_dtype"], half)
    kind = (keys.text("optimizer.type") or "Adam").lower()
    if kind not in _OPTIMIZERS:
        assumed.append(f"optimizer adam in place of {kind}")
    fields["optimizer"] = _OPTIMIZERS.get(kind, "adam")
    if on.runtime.framework == "deepspeed":
        fields["launch"] = on.runtime.launch
    return fields


from_deepspeed = import_table
"""The name of this importer among those of other tools, in `windtunnel.formats`."""

NAMED = ("deepspeed", "deepspeed_config.deepspeed_config_file")
"""Where the name stands: the Trainer's and Axolotl's key, and Accelerate's."""
_UPWARDS = 4
"""Folders that are tried: a name is relative to where the launcher runs, often the root of a repository."""


def open_named_files(table: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """The table with the content of the file as `deepspeed`; the same table where none is named or it does not lie there.

    FileError for a file that lies there and cannot be read.
    """
    name = next((text for path in NAMED if isinstance(text := Keys(table).get(path), str)), None)
    if name is None or not name.endswith(".json"):
        return table
    path = _find_file(name, folder)
    return table if path is None else {**table, "deepspeed": read_table(path)}


def _find_file(name: str, folder: Path) -> Path | None:
    relative = PurePosixPath(name)
    above = [folder, *list(folder.resolve().parents)[: _UPWARDS - 1]]
    tried = [*(base / relative for base in above if not relative.is_absolute()), folder / relative.name]
    try:
        return next((path for path in tried if path.is_file()), None)
    except (OSError, ValueError):
        return None


def fields_of(file: Mapping[str, Any], assumed: list[str]) -> dict[str, Any]:
    """Fields of a plan that the file states: sharding, offload, ZeRO++."""
    keys = Keys(file)
    stage = keys.whole_number("zero_optimization.stage") or 0
    more = {key: value for key, value in zero_plus_of(keys, stage).items() if value}
    return {"offload": offload_of(keys, stage, assumed), **more}


def precision_of(file: Mapping[str, Any]) -> str:
    """bf16 or fp16 where the file enables it, else nothing; "auto" leaves it to the arguments."""
    keys = Keys(file)
    return next((name for name in ("bf16", "fp16") if keys.get(f"{name}.enabled") is True), "")


def left_in(file: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of the file that nothing here reads; those that say "auto" say nothing."""
    keys = Keys(file)
    read = ("zero_optimization.stage", "bf16", "fp16", "gradient_accumulation_steps", "train_micro_batch_size_per_gpu")
    for path in (*read, "train_batch_size"):
        keys.get(path)
    zero_plus_of(keys, 0)
    offload_of(keys, 3, [])
    sharding_fields(keys, "bf16", "bf16", 1)
    return tuple(f"deepspeed.{path}" for path in keys.left_over() if keys.get(path) != "auto")
