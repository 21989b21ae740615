"""A nanotron configuration (YAML): the model, the degrees, the batch and the optimizer in one file.

Names and defaults: `src/nanotron/config/config.py`, `models_config.py` and `parallelism_config.py`; the layout of the stages:
`build_model` of `src/nanotron/models/base.py`. What the software does otherwise is the catalogue's framework `nanotron`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.huggingface.config import from_config
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.several import plan_of
from windtunnel.spec import Job, Model, Plan, Runtime, check, load_model, load_runtime
from windtunnel.spec.shapes import by_work, head_in_layers

FORMAT = "nanotron"
_CONFIG = "model.model_config"
_KINDS = ("is_llama_config", "is_qwen2_config")
"""Decoders that are read, both as Llama: nanotron's Qwen2 has biases only where its file says so."""
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_ENGINES = {"1f1b": "1f1b", "afab": "gpipe"}
_EXPERT_FFN, _SHARED_FFN, _EXPERTS, _TOP_K = 1408, 5632, 8, 2
"""Defaults of `MoEConfig`."""


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is nanotron's: the sections that it cannot do without."""
    return (
        {"model", "parallelism", "tokens"} <= set(table)
        and isinstance(table["model"], Mapping)
        and "model_config" in table["model"]
    )


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model, plan and runtime; with `on`, also a job on that job's cluster. What the user has `stated` beats the file."""
    stated, assumed = stated or Stated(), list[str]()
    keys = Keys(table)
    model = _model(keys, stated)
    plan = _plan(keys, model, stated, assumed)
    runtime = _runtime(keys, plan)
    job = None
    if on is not None:
        steps = keys.count("tokens.train_steps")
        nouns: dict[str, Any] = {"model": model, "plan": plan, "runtime": runtime}
        nouns["cluster"] = on.cluster.model_copy(update={"gpus": plan.tp * plan.pp * plan.cp * (plan.dp or 1)})
        tokens = float(steps * plan.global_batch * plan.seq) if steps else on.tokens
        job = check(Job(name=model.name, tokens=tokens, seed=on.seed, source="nanotron configuration", **nouns))
    return Imported(FORMAT, model, plan, runtime, job, keys.built(), keys.left_over(), tuple(assumed))


def _model(keys: Keys, stated: Stated) -> Model:
    config = keys.get(_CONFIG)
    if not isinstance(config, Mapping):
        raise SpecError(_CONFIG, config, "a table of the model's sizes")
    keys.used.discard(_CONFIG)
    if not any(keys.flag(f"{_CONFIG}.{name}") for name in _KINDS):
        named = next((str(name) for name in config if str(name).startswith("is_")), Nothing())
        raise SpecError(_CONFIG, named, " or ".join(_KINDS), "Not modelled in this version.")
    imported = from_config({**config, "model_type": "llama"}, stated=stated)
    keys.used.update(f"{_CONFIG}.{path}" for path in imported.built)
    model = imported.model
    fields: dict[str, Any] = {"name": f"nanotron-{model.hidden}x{model.layers}", "source": "nanotron configuration"}
    if (window := keys.count(f"{_CONFIG}.sliding_window_size")) is not None:
        fields["window"] = window
    if keys.get(f"{_CONFIG}.moe_config") is not None:
        fields |= _experts(keys, model.layers)
    return load_model({**model.model_dump(exclude_unset=True), **fields})


def _experts(keys: Keys, layers: int) -> dict[str, Any]:
    head = f"{_CONFIG}.moe_config"
    keys.used.discard(head)
    fields: dict[str, Any] = {
        "experts": keys.count(f"{head}.num_experts") or _EXPERTS,
        "top_k": keys.count(f"{head}.top_k") or _TOP_K,
        "expert_ffn": keys.count(f"{head}.moe_intermediate_size") or _EXPERT_FFN,
    }
    shared = keys.count(f"{head}.shared_expert_intermediate_size") or _SHARED_FFN
    fields["shared_ffn"] = shared if keys.flag(f"{head}.enable_shared_expert") else 0
    listed = keys.get(f"{head}.layers")
    if listed not in (None, [-1]):
        if not isinstance(listed, list) or not all(isinstance(one, int) and 0 <= one < layers for one in listed):
            raise SpecError(f"{head}.layers", listed, f"numbers of layers from 0 to {layers - 1}, or [-1] for all")
        fields["layer_pattern"] = "".join("E" if layer in listed else "D" for layer in range(layers))
    return fields


def _plan(keys: Keys, model: Model, stated: Stated, assumed: list[str]) -> Plan:
    degrees = {"tp": "tp", "pp": "pp", "cp": "context_parallel_size", "dp": "dp"}
    tp, pp, cp, dp = (stated.whole_number(f"plan.{name}") or keys.count(f"parallelism.{key}") or 1 for name, key in degrees.items())
    if (experts := keys.count("parallelism.expert_parallel_size") or 1) > 1:
        raise SpecError("parallelism.expert_parallel_size", experts, "1", "nanotron counts these ranks in no group of the world.")
    if (gpus := stated.own_gpus) is not None:
        if gpus % (tp * pp * cp):
            raise SpecError("world size", gpus, f"a multiple of tp x pp x context_parallel_size = {tp * pp * cp}")
        dp = gpus // (tp * pp * cp)
    micro = stated.whole_number("plan.micro_batch") or keys.count("tokens.micro_batch_size")
    seq = stated.whole_number("plan.seq") or keys.count("tokens.sequence_length")
    if micro is None or seq is None:
        missing = "micro_batch_size" if micro is None else "sequence_length"
        raise SpecError(f"tokens.{missing}", Nothing(), "a whole number of 1 or more")
    steps = keys.count("tokens.batch_accumulation_per_replica") or 1
    stage = keys.whole_number("optimizer.zero_stage") or 0
    if stage not in (0, 1):
        raise SpecError("optimizer.zero_stage", stage, "0 or 1")
    engine = (keys.text("parallelism.pp_engine") or "afab").lower()
    if engine not in _ENGINES:
        raise SpecError("parallelism.pp_engine", engine, " or ".join(_ENGINES))
    mode = (keys.text("parallelism.tp_mode") or "ALL_REDUCE").upper()
    layout = by_work(model.layers, pp, head_in_layers(model)) if pp > 1 else None
    if layout is not None:
        assumed.append(layout[1])
    fields: dict[str, Any] = {
        "tp": tp, "pp": pp, "cp": cp, "dp": dp, "micro_batch": micro, "seq": seq, "stages": layout[0] if layout else None,
        "global_batch": stated.whole_number("plan.global_batch") or micro * steps * dp,
        "sequence_parallel": tp > 1 and mode == "REDUCE_SCATTER", "sharding": f"zero{stage}" if stage else "none",
        "recompute": "full" if keys.flag("parallelism.recompute_layer") else "none",
        "schedule": _ENGINES[engine] if pp > 1 else None,
    }  # fmt: skip
    return plan_of(fields)


def _runtime(keys: Keys, plan: Plan) -> Runtime:
    dtype = keys.text("model.dtype") or "float32"
    if dtype not in _DTYPES:
        raise SpecError("model.dtype", dtype, ", ".join(_DTYPES))
    half, wide = _DTYPES[dtype], keys.get("optimizer.accumulate_grad_in_fp32") is True
    gradients = "fp32" if wide else half
    megabytes = keys.count("model.ddp_bucket_cap_mb") or 25
    return load_runtime(
        "nanotron",
        precision=half,
        weight_dtype=half,
        gradient_dtype=gradients,
        reduce_dtype=gradients,
        master_weights=wide and half != "fp32",
        overlap_tp_dgrad=keys.flag("parallelism.tp_linear_async_communication"),
        overlap_grad_reduce=plan.sharding == "none",
        bucket=megabytes * 2**20 * (2.0 if wide and half != "fp32" else 1.0),
        fused_optimizer=keys.get("optimizer.optimizer_factory.torch_adam_is_fused") is True,
        pad_vocab=keys.count("model.make_vocab_size_divisible_by") or 1,
    )
