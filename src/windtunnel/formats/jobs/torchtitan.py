"""torchtitan's configurations and model flavors.

A torchtitan configuration: its TOML, or the JSON that `debug.save_config_file` writes, whose sections have the same names.

Fields and defaults: `torchtitan/config/job_config.py`; stages as `distributed/pipeline_parallel.py` cuts them, the embedding and
the output counting as a layer each.

torchtitan's models by name and flavor, as models of the catalogue or as tables: torchtitan.toml.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.base.errors import Nothing, SpecError, UnknownName
from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.hub_names import catalogue_model, unknown_model
from windtunnel.formats.jobs.imported import NO_GPUS, Imported, Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.launched import KEY, Launched
from windtunnel.formats.jobs.several import plan_of
from windtunnel.formats.jobs.trainer_keys import first_count
from windtunnel.spec import Job, Model, Plan, Runtime, check, load_model, load_runtime, names

_TABLE = table_beside(__file__)
FLAVORS: dict[str, str] = _TABLE["catalogue"]
"""Models of the catalogue; what is not here has the name of its flavor."""
ATTENTION_SUFFIXES = ("_flex_attn", "_varlen_attn", "_flex", "_varlen", "_irope")
"""Ends of flavors that choose an attention kernel, not a network."""


def _fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the parts that a table is made `of`, then its own."""
    joined: dict[str, Any] = {}
    for part in table.get("of", ()):
        joined |= _fields(_TABLE["parts"][part])
    return joined | {name: value for name, value in table.items() if name != "of"}


TABLES: dict[str, dict[str, Any]] = {name: _fields(table) for name, table in _TABLE["models"].items()}
"""Models as tables of `spec.Model`."""


FORMAT = "torchtitan"
TELLING = frozenset({"training", "parallelism"})
"""Sections that a job file of ours does not have."""

SCHEDULES = {
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved1f1b": "interleaved",
    "loopedbfs": "breadth-first",
    "interleavedzerobubble": "interleaved-zb",
    "zbvzerobubble": "zbv",
    "dualpipev": "dualpipev",
}
_DTYPES = {"bfloat16": "bf16", "float32": "fp32"}
_BACKENDS: dict[str, dict[str, Any]] = {
    "standard": {},
    "deepep": {"moe_dispatch": "deepep", "moe_reorder": "fused"},
    "hybridep": {"moe_dispatch": "hybridep", "moe_reorder": "fused"},
}
"""What sends tokens to experts (parallelism.expert_parallel_comm_backend, December 2025)."""


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table has torchtitan's sections, and is no job file of ours, which has a plan or a cluster."""
    return bool(TELLING & set(table)) and not {"plan", "cluster"} & set(table)


def import_table(config: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model (by name and flavor), plan and runtime; with `on`, also a job on that job's cluster.

    A degree of -1 is what the GPUs leave: those `stated`, or the machine's. Where every degree is written out, their product is
    the number of GPUs, which `stated` beats.
    """
    keys, assumed = Keys(config), list[str]()
    stated = stated or Stated()
    model = stated.model or _model(keys, assumed)
    started = replace(Launched.of_table(config), processes=first_count(keys, ("num_processes",)))
    keys.get(KEY)
    gpus = stated.own_gpus or _written_out(keys, stated, assumed)
    gpus = gpus or stated.gpus_of(started, on, assumed, _model_ranks(keys, stated))
    plan = _plan(keys, model, gpus, stated, assumed)
    runtime = _runtime(keys, plan)
    job = None
    if on is not None:
        steps = keys.count("training.steps")
        tokens = float(steps * plan.global_batch * plan.seq) if steps else on.tokens
        job = check(
            Job(
                name=model.name,
                model=model,
                plan=plan,
                runtime=runtime,
                cluster=on.cluster.model_copy(update={"gpus": gpus}),
                tokens=tokens,
                seed=on.seed,
                source="torchtitan configuration",
            )
        )
    return Imported(FORMAT, model, plan, runtime, job, keys.built(), keys.left_over(), tuple(assumed), table=config)


def _model(keys: Keys, assumed: list[str]) -> Model:
    name, flavor = (keys.text(f"model.{word}") or keys.text(f"model_spec.{word}") for word in ("name", "flavor"))
    keys.get("model_spec")
    if name == "transformers_modeling_backend" and (repository := keys.text("hf_transformers.model")) is not None:
        return _of_hub(repository, assumed)
    if name is None or flavor is None:
        raise SpecError(
            "model.flavor",
            Nothing() if flavor is None else flavor,
            "name and flavor of a model, as [model] has them",
            "Or give the model beside it: --model NAME or --model CONFIG.JSON.",
        )
    wanted = f"{name}-{flavor}".lower()
    for ending in ATTENTION_SUFFIXES:
        wanted = wanted.removesuffix(ending)
    if wanted in TABLES:
        return load_model({"name": f"torchtitan-{wanted}", "source": "torchtitan v0.2.2", **TABLES[wanted]})
    known = FLAVORS.get(wanted, wanted.replace("_", "-"))
    if known not in names("models") and (found := catalogue_model(flavor if flavor.count("-") > 1 else f"{name}-{flavor}")):
        known = found.name
    if known not in names("models"):
        others = [entry for entry in names("models") if entry.startswith(("qwen3", "gpt-oss"))]
        raise UnknownName("model.flavor", wanted, sorted((*FLAVORS, *TABLES, *others)))
    model = load_model(known)
    if model.mtp_layers:
        model = model.model_copy(update={"mtp_layers": 0})
        assumed.append("no layer that predicts further tokens: torchtitan trains none")
    assumed.append(f"model {known} of the catalogue")
    return model


def _of_hub(repository: str, assumed: list[str]) -> Model:
    """The catalogue's model that a repository of the Hugging Face hub holds, by its name without the tuning."""
    known = catalogue_model(repository, assumed)
    if known is None:
        raise unknown_model("hf_transformers.model", repository)
    assumed.append(f"model {known.name} of the catalogue, for {repository}")
    return known


def _model_ranks(keys: Keys, stated: Stated) -> int:
    """GPUs of one copy of the model, where its shards are not written out."""
    names = (("tensor", "tp"), ("pipeline", "pp"), ("context", "cp"))
    return math.prod(
        stated.whole_number(f"plan.{field}") or keys.count(f"parallelism.{name}_parallel_degree") or 1 for name, field in names
    ) * (keys.count("parallelism.data_parallel_replicate_degree") or 1)


def _written_out(keys: Keys, stated: Stated, assumed: list[str]) -> int | None:
    """The product of the degrees where none is left to the machine and they are more than a try on one GPU."""
    shard = keys.whole_number("parallelism.data_parallel_shard_degree") or -1
    if shard < 1:
        return None
    others = [(f"{name}_parallel", field) for name, field in (("tensor", "tp"), ("pipeline", "pp"), ("context", "cp"))]
    degrees = [shard, keys.count("parallelism.data_parallel_replicate_degree") or 1]
    degrees += [stated.whole_number(f"plan.{field}") or keys.count(f"parallelism.{name}_degree") or 1 for name, field in others]
    total = math.prod(degrees)
    if total == 1:
        return None
    assumed.append(f"{total} GPUs, the product of the degrees (--set cluster.gpus=N)")
    return total


def _plan(keys: Keys, model: Model, gpus: int | None, stated: Stated, assumed: list[str]) -> Plan:
    def degree(name: str, field: str = "") -> int:
        return stated.whole_number(f"plan.{field}") or keys.count(f"parallelism.{name}_degree") or 1

    tp, pp, cp = degree("tensor_parallel", "tp"), degree("pipeline_parallel", "pp"), degree("context_parallel", "cp")
    replicate, shard = degree("data_parallel_replicate"), keys.whole_number("parallelism.data_parallel_shard_degree") or -1
    if shard * replicate * tp * pp * cp == 1 and gpus is not None and gpus > 1:
        shard = -1
        assumed.append(f"shards over all {gpus} GPUs: degrees of 1 are those of a try on one (--set cluster.gpus=1)")
    if shard < 1 and gpus is not None:
        shard = max(1, gpus // (replicate * tp * pp * cp))
    dp = replicate * shard if shard > 0 else None
    local = stated.whole_number("plan.micro_batch") or keys.count("training.local_batch_size") or keys.count("training.batch_size")
    seq = stated.whole_number("plan.seq") or keys.count("training.seq_len") or keys.count("training.max_context_length") or 2048
    tokens = keys.count("training.num_tokens_per_microbatch_per_dp_rank")
    several = keys.count("parallelism.num_pp_microbatches") if pp > 1 else None
    local = local or (max(1, tokens // seq) * (several or 1) if tokens else 8)
    total = stated.whole_number("plan.global_batch") or keys.whole_number("training.global_batch_size") or -1
    if total < 1 and (of_step := keys.count("training.num_tokens_per_train_step")):
        total = max(1, of_step // seq)
    if total < 1:
        if dp is None:
            raise SpecError("training.global_batch_size", Nothing(), "a whole number of 1 or more", NO_GPUS)
        total = local * dp
        assumed.append(f"global batch {total}: {local} a data-parallel rank (training.global_batch_size left out)")
    micro = local
    if pp > 1:
        micro = max(1, local // several) if several else keys.count("parallelism.pipeline_parallel_microbatch_size") or 1
    fields: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "dp": dp,
        "micro_batch": micro,
        "global_batch": total,
        "seq": seq,
        "sequence_parallel": tp > 1 and keys.get("parallelism.enable_sequence_parallel") is not False,
        "ep": degree("expert_parallel"),
        "etp": degree("expert_tensor_parallel") if model.experts else 1,
        "sharding": "none" if shard == 1 and cp == 1 else "hsdp" if replicate > 1 else "fsdp",
        "shard_group": shard * cp if replicate > 1 and shard > 1 else None,
        "cp_kind": _rotation(keys, cp),
        **_stages(keys, model, pp),
        **_recompute(keys, model, pp, assumed),
    }
    if keys.flag("training.enable_cpu_offload"):  # FSDP's CPUOffloadPolicy: shards and optimizer state live on the host
        fields["offload"] = {"parameters": "host", "optimizer": "host"}
    return plan_of(fields)


def _rotation(keys: Keys, cp: int) -> str | None:
    """How keys and values meet: PyTorch gathers them, or passes them on."""
    method = keys.text("parallelism.context_parallel_rotate_method") or "allgather"
    kinds = {"allgather": "all_gather", "alltoall": "p2p"}
    if method not in kinds:
        raise SpecError("parallelism.context_parallel_rotate_method", method, ", ".join(kinds))
    return kinds[method] if cp > 1 else None


def _stages(keys: Keys, model: Model, pp: int) -> dict[str, Any]:
    """Schedule, virtual stages and layers of each; embedding and output count as a layer at their ends."""
    wanted = keys.text("parallelism.pipeline_parallel_schedule") or "1F1B"
    first, last = (keys.whole_number(f"parallelism.pipeline_parallel_{end}_stage_less_layers") for end in ("first", "last"))
    each = keys.count("parallelism.pipeline_parallel_layers_per_stage")
    if pp == 1:
        return {}
    if wanted.lower() not in SCHEDULES:
        raise UnknownName(
            "parallelism.pipeline_parallel_schedule",
            wanted,
            ["1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"],
        )
    schedule = SCHEDULES[wanted.lower()]
    ends = (1 if first is None else first, 1 if last is None else last)
    total = model.layers + sum(ends)
    vpp = 1 if schedule in ("1f1b", "gpipe") else 2
    if each is not None and vpp > 1:
        vpp = max(1, -(-total // each) // pp)
    if pp * vpp > total:  # torchtitan refuses it too
        raise SpecError("parallelism.pipeline_parallel_degree", pp, f"stages for the {model.layers} layers")
    base, extra = divmod(total, pp * vpp)
    layers = [base + (1 if i < extra else 0) for i in range(pp * vpp)]
    layers[0], layers[-1] = layers[0] - ends[0], layers[-1] - ends[1]
    if min(layers) < 0:
        raise SpecError("parallelism.pipeline_parallel_degree", pp, f"stages for the {model.layers} layers")
    return {"schedule": schedule, "vpp": vpp, "stages": layers}


def _recompute(keys: Keys, model: Model, pp: int, assumed: list[str]) -> dict[str, Any]:
    mode = keys.text("activation_checkpoint.mode") or _dumped_mode(keys)
    option = str(keys.get("activation_checkpoint.selective_ac_option") or "op")
    if mode not in ("none", "full", "selective"):
        raise SpecError("activation_checkpoint.mode", mode, "none, selective, full")
    if mode != "selective":
        return {"recompute": mode}
    if option == "op":
        return {"recompute": "ops"}
    if not option.isdecimal() or not 1 <= int(option[:9]) <= model.layers:
        raise SpecError("activation_checkpoint.selective_ac_option", option, "op, or a whole number: every how many layers")
    vpp = _stages(keys, model, pp).get("vpp", 1)
    count = -(-model.layers // (pp * vpp)) // int(option[:9])
    assumed.append(f"{count} layers of every stage recompute in full (every {option}th)")
    return {"recompute": "full", "recompute_layers": count} if count else {"recompute": "none"}


def _dumped_mode(keys: Keys) -> str:
    """A dumped configuration names no mode: its kind shows in the fields that it has (distributed/activation_checkpoint.py)."""
    section = keys.get("activation_checkpoint")
    if not isinstance(section, Mapping) or "preserve_rng_state" not in section:
        return "selective" if "model_spec" not in keys.table else "none"
    fields = set(section) - {"preserve_rng_state", "determinism_check", "debug"}
    return "selective" if fields else "full"


def _float8(keys: Keys, precision: str) -> dict[str, Any]:
    """torchao's float8: recipe and gathers in FP8, from whichever section this version of torchtitan has them in."""
    if precision != "fp8":
        return {}
    sections = ("quantize.linear.float8", "quantize.dense.float8", "float8")
    recipe = next((name for path in sections if (name := keys.text(f"{path}.recipe_name"))), "tensorwise")
    recipes = {"tensorwise": "current", "rowwise": "rowwise", "rowwise_with_gw_hp": "rowwise"}
    if recipe not in recipes:
        raise SpecError("float8.recipe_name", recipe, ", ".join(recipes))
    gathers = any([keys.flag(f"{path}.enable_fsdp_float8_all_gather") for path in sections])
    return {"fp8_recipe": recipes[recipe], "fp8_param_gather": gathers}


def _runtime(keys: Keys, plan: Plan) -> Runtime:
    params = keys.text("training.mixed_precision_param") or "bfloat16"
    reduce = keys.text("training.mixed_precision_reduce") or "float32"
    for path, dtype in (("training.mixed_precision_param", params), ("training.mixed_precision_reduce", reduce)):
        if dtype not in _DTYPES:
            raise SpecError(path, dtype, ", ".join(_DTYPES))
    listed = keys.get("model.converters") or []
    converters = listed.split(",") if isinstance(listed, str) else listed if isinstance(listed, list) else []
    precision = _DTYPES[params]
    for name in map(str, converters):
        precision = "mxfp8" if name.startswith("mx") or "mx" in name.split(".") else "fp8" if "float8" in name else precision
    fields: dict[str, Any] = {"precision": precision, "reduce_dtype": _DTYPES[reduce], **_float8(keys, precision)}
    optimizer = (keys.text("optimizer.name") or "AdamW").lower()
    if optimizer.removesuffix("w") not in ("adam", "sgd", "muon"):
        raise SpecError("optimizer.name", optimizer, "AdamW, Adam, SGD, Muon")
    fields["optimizer"] = optimizer.removesuffix("w")
    components = keys.get("compile.components")
    model = components is None or isinstance(components, list) and "model" in components
    compiled = keys.flag("training.compile") or keys.flag("compile.enable") and model
    fields["launch"] = "compile" if compiled else "eager"
    wanted = keys.flag("parallelism.enable_async_tensor_parallel") or keys.flag("compile.enable_async_tensor_parallel")
    fields["overlap_tp"] = wanted and compiled and plan.tp > 1
    backend = keys.text("parallelism.expert_parallel_comm_backend") or "standard"
    if backend not in _BACKENDS:
        raise SpecError("parallelism.expert_parallel_comm_backend", backend, ", ".join(_BACKENDS))
    fields |= _BACKENDS[backend]
    reshard = keys.text("parallelism.fsdp_reshard_after_forward") or "default"
    if reshard not in ("default", "always", "never"):
        raise SpecError("parallelism.fsdp_reshard_after_forward", reshard, "default, always, never")
    fields["reshard_after_forward"] = reshard == "always" or reshard == "default" and plan.pp == 1
    return load_runtime("torchtitan", **fields)


from_torchtitan = import_table
"""The name of this importer among those of other tools, in `windtunnel.formats`."""
