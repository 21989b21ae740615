"""An llm-foundry configuration (YAML): an MPT model or one of the hub, Composer's batches, and FSDP.

Names and defaults: llm-foundry `llmfoundry/models/mpt/configuration_mpt.py`, `models/utils/config_defaults.py` and
`utils/config_utils.py`; Composer `trainer/trainer.py` (`device_train_microbatch_size`) and `distributed/mosaic_parallelism.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.hub_names import catalogue_model, unknown_model
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys, interpolate
from windtunnel.formats.jobs.several import plan_of
from windtunnel.spec import Job, Model, Plan, Runtime, check, load_model, load_runtime

FORMAT = "llm-foundry"
_SHARDING = {"FULL_SHARD": "fsdp", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none", "HYBRID_SHARD": "hsdp"}
_PRECISIONS = {"amp_bf16": "bf16", "amp_fp16": "fp16", "amp_fp8": "fp8", "fp32": "fp32"}
_NORMS = {"layernorm": "layernorm", "rmsnorm": "rmsnorm"}
_EXPERTS = ("mb_moe", "mb_dmoe", "torch_dmoe")
_FFNS = ("mptmlp", "mptglu", "te_ln_mlp", *_EXPERTS)
_NODE = 8
"""GPUs of a node, over which HYBRID_SHARD shards."""


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is llm-foundry's: Composer's batch, and a model by its name in the registry."""
    model = table.get("model")
    return "global_train_batch_size" in table and isinstance(model, Mapping) and "name" in model


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model, plan and runtime; with `on`, also a job on that job's cluster. What the user has `stated` beats the file."""
    stated, assumed = stated or Stated(), list[str]()
    keys = Keys({key: value for key, value in interpolate(table).items() if key != "variables"})
    model = _model(keys, stated, assumed)
    gpus = stated.gpus_on(on, assumed)
    plan = _plan(keys, model, gpus, stated, assumed)
    runtime = _runtime(keys, plan)
    job = None
    if on is not None:
        cluster = on.cluster.model_copy(update={"gpus": gpus or on.cluster.gpus})
        nouns: dict[str, Any] = {"model": model, "plan": plan, "runtime": runtime, "cluster": cluster}
        tokens = _tokens(keys, plan) or on.tokens
        job = check(Job(name=model.name, tokens=tokens, seed=on.seed, source="llm-foundry configuration", **nouns))
    return Imported(FORMAT, model, plan, runtime, job, keys.built(), keys.left_over(), tuple(assumed))


def _model(keys: Keys, stated: Stated, assumed: list[str]) -> Model:
    name = keys.text("model.name")
    if keys.get("model.peft_config") is not None:
        raise SpecError("model.peft_config", keys.text("model.peft_config.peft_type") or "", "a model that is trained whole")
    if name == "mpt_causal_lm":
        return _mpt(keys, stated)
    if name != "hf_causal_lm":
        raise SpecError("model.name", name or Nothing(), "mpt_causal_lm, hf_causal_lm", "Not modelled in this version.")
    source = keys.text("model.pretrained_model_name_or_path")
    if stated.model is not None:
        return stated.model
    known = catalogue_model(source, assumed) if source else None
    path = "model.pretrained_model_name_or_path"
    if not source:
        raise SpecError(
            path, Nothing(), "a model of the catalogue", "Give the model beside it: --model NAME or --model CONFIG.JSON."
        )
    if known is None:
        raise unknown_model(path, source)
    assumed.append(f"model {known.name} of the catalogue, for {source}")
    return known


def _mpt(keys: Keys, stated: Stated) -> Model:
    hidden = stated.whole_number("model.hidden") or keys.count("model.d_model") or 2048
    layers = stated.whole_number("model.layers") or keys.count("model.n_layers") or 24
    for path in ("model.block_overrides", "model.attn_config.kv_dim"):
        if keys.get(path) is not None:
            raise SpecError(path, "…", "layers that are all alike", "Not modelled in this version.")
    norm = (keys.text("model.norm_type") or "low_precision_layernorm").removeprefix("low_precision_").removeprefix("triton_")
    if norm not in _NORMS:
        raise SpecError("model.norm_type", norm, "layernorm, rmsnorm, low_precision_layernorm, low_precision_rmsnorm")
    tied, rates = keys.get("model.tie_word_embeddings"), ("model.resid_pdrop", "model.emb_pdrop", "model.attn_config.attn_pdrop")
    table: dict[str, Any] = {
        "name": f"mpt-{hidden}x{layers}",
        "layers": layers,
        "hidden": hidden,
        "vocab": stated.whole_number("model.vocab") or keys.count("model.vocab_size") or 50368,
        "max_seq": keys.count("model.max_seq_len") or keys.count("max_seq_len") or 2048,
        "norm": norm,
        "tied_embeddings": tied is not False,
        "linear_bias": not keys.flag("model.no_bias"),
        "dropout": any((keys.get_typed(path, float) or 0.0) > 0.0 for path in rates),
        "source": "llm-foundry configuration",
        **_attention(keys, stated),
        **_feed(keys, hidden, stated),
    }
    return load_model({key: value for key, value in table.items() if value is not None})


def _attention(keys: Keys, stated: Stated) -> dict[str, Any]:
    head = "model.attn_config"
    heads, kind = stated.whole_number("model.heads") or keys.count("model.n_heads") or 16, keys.text(f"{head}.attn_type")
    grouped = keys.count(f"{head}.kv_n_heads")
    window = keys.whole_number(f"{head}.sliding_window_size")
    learned = keys.get("model.learned_pos_emb") is not False
    position = "alibi" if keys.flag(f"{head}.alibi") else "rope" if keys.flag(f"{head}.rope") else "learned" if learned else "none"
    return {
        "heads": heads,
        "kv_heads": 1 if kind == "multiquery_attention" else grouped if kind == "grouped_query_attention" else heads,
        "head_dim": keys.count("model.head_dim"),
        "qk_norm": keys.flag(f"{head}.qk_ln") or keys.flag(f"{head}.qk_gn"),
        "window": window + 1 if window is not None and window > 0 else None,
        "position": position,
    }


def _feed(keys: Keys, hidden: int, stated: Stated) -> dict[str, Any]:
    head = "model.ffn_config"
    kind, ratio = keys.text(f"{head}.ffn_type") or "mptmlp", keys.get_typed("model.expansion_ratio", float)
    if kind not in _FFNS:
        raise SpecError(f"{head}.ffn_type", kind, ", ".join(_FFNS))
    width = keys.count(f"{head}.ffn_hidden_size") or stated.whole_number("model.ffn")
    if width is None:
        if ratio is not None and not 0.0 < ratio < 1e3:
            raise SpecError("model.expansion_ratio", ratio, "a number above 0")
        width = int(hidden * (4 if ratio is None else ratio))
    activation = keys.get(f"{head}.ffn_act_fn.name") or "gelu"
    fields: dict[str, Any] = {"ffn": width, "activation": "relu" if activation == "relu" else "gelu"}
    if kind == "mptglu" or kind in _EXPERTS and keys.text(f"{head}.mlp_type") == "glu":
        fields["activation"] = "swiglu" if activation == "silu" else "geglu"
    if kind in _EXPERTS:
        fields |= {"experts": keys.count(f"{head}.moe_num_experts") or 1, "top_k": keys.count(f"{head}.moe_top_k") or 1}
        fields["expert_ffn"] = width
    return fields


def _plan(keys: Keys, model: Model, gpus: int | None, stated: Stated, assumed: list[str]) -> Plan:
    batch = stated.whole_number("plan.global_batch") or keys.count("global_train_batch_size")
    seq = stated.whole_number("plan.seq") or keys.count("max_seq_len")
    if batch is None or seq is None:
        path = "max_seq_len" if seq is None else "global_train_batch_size"
        raise SpecError(path, Nothing(), "a whole number of 1 or more")
    micro = stated.whole_number("plan.micro_batch")
    if micro is None and keys.get("device_train_microbatch_size") not in (None, "auto"):
        micro = keys.count("device_train_microbatch_size")
    if micro is None:
        micro = 1
        assumed.append("micro batch 1: Composer finds it by trying (device_train_microbatch_size: auto; --set plan.micro_batch=N)")
    if gpus and batch >= gpus and micro > batch // gpus:
        assumed.append(f"micro batch {batch // gpus}, a device's whole batch (device_train_microbatch_size is {micro})")
        micro = batch // gpus
    if keys.get("tp_config") is not None:
        raise SpecError("tp_config", "…", "FSDP or DDP without tensor parallelism", "Not modelled in this version.")
    strategy = str(keys.get("fsdp_config.sharding_strategy") or "FULL_SHARD").upper()
    if strategy not in _SHARDING:
        raise SpecError("fsdp_config.sharding_strategy", strategy, ", ".join(_SHARDING))
    sharding = _SHARDING[strategy] if keys.table.get("fsdp_config") else "none"
    recompute = keys.flag("fsdp_config.activation_checkpointing")
    experts = keys.count("model.ffn_config.moe_world_size") or 1
    if keys.flag("fsdp_config.activation_cpu_offload"):
        assumed.append("activations stay on the GPU (fsdp_config.activation_cpu_offload is not modelled here)")
    fields: dict[str, Any] = {
        "dp": gpus, "micro_batch": micro, "global_batch": batch, "seq": seq, "sharding": sharding,
        "ep": experts if model.experts and experts > 1 else None,
        "shard_group": _NODE if sharding == "hsdp" and gpus and gpus % _NODE == 0 else None,
        "recompute": "full" if recompute else "none",
    }  # fmt: skip
    return plan_of(fields)


def _runtime(keys: Keys, plan: Plan) -> Runtime:
    named = keys.text("precision") or "amp_bf16"
    if named not in _PRECISIONS:
        raise SpecError("precision", named, ", ".join(_PRECISIONS))
    mixed = str(keys.get("fsdp_config.mixed_precision") or "DEFAULT").upper()
    precision = "fp32" if mixed == "FULL" and plan.shards_parameters else _PRECISIONS[named]
    fields: dict[str, Any] = {"precision": precision}
    if mixed != "PURE" or plan.sharding == "none":
        fields["reduce_dtype"] = "fp32"
    kernel = keys.text("model.attn_config.attn_impl") or "flash"
    keys.get("model.use_flash_attention_2")
    fields["attention"] = "unfused" if kernel == "torch" else "flash"
    fields["launch"] = "compile" if keys.get("compile_config") is not None else "eager"
    name = keys.text("optimizer.name") or ""
    if name and "adam" not in name:
        raise SpecError("optimizer.name", name, "decoupled_adamw, adamw", "Not modelled in this version.")
    return load_runtime("fsdp", **fields)


def _tokens(keys: Keys, plan: Plan) -> float | None:
    """Tokens of the whole run, where its length is in batches, samples or tokens."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?(?:e\d{1,2})?)(ba|sp|tok)", str(keys.get("max_duration")))
    if match is None:
        return None
    each = {"ba": float(plan.global_batch * plan.seq), "sp": float(plan.seq), "tok": 1.0}[match[2]]
    return float(match[1]) * each
