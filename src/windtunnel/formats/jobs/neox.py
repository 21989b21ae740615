"""A GPT-NeoX configuration: YAML (or JSON-like YAML) with the model, the degrees and DeepSpeed's keys in one file.

Names and defaults: `megatron/neox_arguments/neox_args.py`; the width of the MLP: `ParallelMLP` of `megatron/model/transformer.py`.
Dashes and underscores in keys are the same there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.deepspeed import first_of_lists
from windtunnel.formats.jobs.hub_names import vocabulary_of_name
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.several import plan_of
from windtunnel.spec import DTYPE_BYTES, Job, Model, Plan, Runtime, check, load_model, load_runtime

FORMAT = "gpt-neox"
_POSITIONS = {"learned": "learned", "rotary": "rope", "alibi": "alibi", "none": "none", "sinusoidal": "learned", "rpe": "learned"}
_GATED = {"swiglu": "swiglu", "geglu": "geglu", "reglu": "swiglu", "bilinear": "swiglu", "glu": "swiglu"}
_PLAIN = {"gelu": "gelu", "relu": "relu", "softsign": "relu", "swish": "gelu", "mish": "gelu", "silu": "gelu"}
_NORMS = {
    "layernorm": "layernorm",
    "rmsnorm": "rmsnorm",
    "scalenorm": "rmsnorm",
    "te_layernorm": "layernorm",
    "te_rmsnorm": "rmsnorm",
}
_TOKENIZERS = {"GPT2BPETokenizer": 50257, "HFGPT2Tokenizer": 50257, "CharLevelTokenizer": 512, "SPMTokenizer": 32000}
_PILE = 50277
"""The Pile's tokenizer of GPT-NeoX-20B and Pythia (20B_tokenizer.json)."""


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is GPT-NeoX's: keys that no other configuration has together."""
    keys = {str(key).replace("-", "_") for key in table}
    return {"num_layers", "hidden_size", "num_attention_heads"} <= keys and bool(
        keys & {"pipe_parallel_size", "model_parallel_size", "no_weight_tying", "pos_emb", "gpt_j_residual", "attention_config"}
    )


def import_table(config: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model, plan and runtime; with `on`, also a job on that job's cluster. What the user has `stated` beats the file."""
    stated, assumed = stated or Stated(), list[str]()
    if "autotuning" in config:
        config = first_of_lists(config, "", assumed)
    keys = Keys({str(key).replace("-", "_"): value for key, value in config.items()})
    model = _model(keys, stated, assumed)
    gpus = stated.gpus_on(on, assumed, (keys.count("model_parallel_size") or 1) * (keys.count("pipe_parallel_size") or 1))
    plan = _plan(keys, model, gpus, stated, assumed)
    runtime = _runtime(keys)
    job = None
    if on is not None:
        steps = keys.count("train_iters")
        tokens = float(steps * plan.global_batch * plan.seq) if steps else on.tokens
        nouns: dict[str, Any] = {"model": model, "plan": plan, "runtime": runtime}
        nouns["cluster"] = on.cluster.model_copy(update={"gpus": gpus or on.cluster.gpus})
        job = check(Job(name=model.name, tokens=tokens, seed=on.seed, source="GPT-NeoX configuration", **nouns))
    return Imported(FORMAT, model, plan, runtime, job, keys.built(), keys.left_over(), tuple(assumed))


def _model(keys: Keys, stated: Stated, assumed: list[str]) -> Model:
    layers = stated.whole_number("model.layers") or keys.required_count("num_layers")
    hidden = stated.whole_number("model.hidden") or keys.required_count("hidden_size")
    activation = keys.text("activation") or "gelu"
    if activation not in _GATED and activation not in _PLAIN:
        raise SpecError("activation", activation, ", ".join((*_PLAIN, *_GATED)))
    position, norm = keys.text("pos_emb") or "learned", keys.text("norm") or "layernorm"
    for key, value, known in (("pos_emb", position, _POSITIONS), ("norm", norm, _NORMS)):
        if value not in known:
            raise SpecError(key, value, ", ".join(known))
    rates = [keys.get_typed(f"{name}_dropout", float) for name in ("hidden", "attention")]
    table: dict[str, Any] = {
        "name": f"neox-{hidden}x{layers}",
        "layers": layers,
        "hidden": hidden,
        "heads": stated.whole_number("model.heads") or keys.required_count("num_attention_heads"),
        "kv_heads": keys.count("num_kv_heads"),
        "ffn": _width(keys, hidden, activation in _GATED, assumed),
        "vocab": stated.whole_number("model.vocab") or _vocabulary(keys, assumed),
        "max_seq": keys.count("max_position_embeddings") or keys.count("seq_length"),
        "activation": {**_PLAIN, **_GATED}[activation],
        "norm": _NORMS[norm],
        "position": _POSITIONS[position],
        "tied_embeddings": not keys.flag("no_weight_tying"),
        "linear_bias": keys.get("use_bias_in_mlp") is not False and keys.get("use_bias_in_attn_linear") is not False,
        "qk_norm": keys.flag("use_qk_layernorm"),
        "parallel_block": keys.flag("gpt_j_residual"),
        "dropout": any(rate is None or rate > 0 for rate in rates),
        "source": "GPT-NeoX configuration",
        **_attention(keys, layers),
        **_experts(keys),
    }
    return load_model({key: value for key, value in table.items() if value is not None})


def _width(keys: Keys, hidden: int, gated: bool, assumed: list[str]) -> int:
    """The inner width of the MLP: a gated one has a third of what is stated, in multiples of 256."""
    factor = keys.get_typed("expansion_factor", float)
    width = keys.count("intermediate_size") or (int(factor * hidden) if factor is not None and 0 < factor < 1e3 else 4 * hidden)
    if gated:
        width = int(width * 2 / 3) // 2
    multiple = max(keys.count("mlp_multiple_of") or 1, 256 if gated else 1)
    rounded = -(-width // multiple) * multiple
    if gated:
        assumed.append(f"ffn {rounded}: a third of the stated width in multiples of {multiple}, as ParallelMLP makes it")
    return rounded


def _vocabulary(keys: Keys, assumed: list[str]) -> int:
    if (size := keys.count("padded_vocab_size")) is not None:
        return size
    kind, file = keys.text("tokenizer_type") or "GPT2BPETokenizer", keys.text("vocab_file") or ""
    size = _TOKENIZERS.get(kind) or vocabulary_of_name(file) or _PILE
    assumed.append(f"vocabulary {size}, that of {kind}" + (f" and {file}" if file else ""))
    return size


def _attention(keys: Keys, layers: int) -> dict[str, Any]:
    """The kinds in attention_config: full attention of any kernel. Others are refused."""
    listed = keys.get("attention_config") or []
    if not isinstance(listed, list):
        raise SpecError("attention_config", listed, 'a list of kinds and numbers of layers, such as [[["flash"], "all"]]')
    kinds = {str(kind) for entry in listed if isinstance(entry, list) and entry for kind in _flat(entry[0])}
    if wrong := kinds - {"global", "flash", "ring"}:
        raise SpecError("attention_config", sorted(wrong)[0], "global, flash", "Not modelled in this version.")
    fields: dict[str, Any] = {}
    if (window := keys.count("sliding_window_width")) is not None:
        fields["window"] = window
    return fields


def _flat(entry: Any) -> list[Any]:
    return [one for part in entry for one in _flat(part)] if isinstance(entry, list) else [entry]


def _experts(keys: Keys) -> dict[str, Any]:
    experts = keys.count("moe_num_experts") or 1
    return {"experts": experts, "top_k": keys.count("moe_top_k") or 1} if experts > 1 else {}


def _plan(keys: Keys, model: Model, gpus: int | None, stated: Stated, assumed: list[str]) -> Plan:
    tp = stated.whole_number("plan.tp") or keys.count("model_parallel_size") or 1
    pp = stated.whole_number("plan.pp") or max(1, keys.whole_number("pipe_parallel_size") or 1)
    dp = gpus // (tp * pp) if gpus else None
    if gpus and (not dp or dp * tp * pp != gpus):
        raise SpecError("world size", gpus, f"a multiple of model_parallel_size x pipe_parallel_size = {tp * pp}")
    micro = stated.whole_number("plan.micro_batch") or keys.count("train_micro_batch_size_per_gpu")
    steps, total = (
        keys.count("gradient_accumulation_steps"),
        stated.whole_number("plan.global_batch") or keys.count("train_batch_size"),
    )
    if micro is None:
        micro = max(1, total // (dp * (steps or 1))) if total and dp else 4
        assumed.append(f"micro batch {micro} (train_micro_batch_size_per_gpu left out)")
    if total is None:
        total = micro * (dp or 1) * (steps or 1)
        ranks = f"{dp} data-parallel ranks" if dp else "one data-parallel rank, as no number of GPUs is stated"
        assumed.append(f"global batch {total} on {ranks} (train_batch_size left out)")
    stage = keys.whole_number("zero_optimization.stage") or 0
    if stage not in (0, 1, 2, 3):
        raise SpecError("zero_optimization.stage", stage, "0, 1, 2 or 3")
    stages = None
    if model.layers % pp:
        base, extra = divmod(model.layers, pp)
        stages = [base + (stage < extra) for stage in range(pp)]
        assumed.append(f"stages of {stages[0]} and {base} layers: {model.layers} do not divide by {pp}")
    fields: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "stages": stages,
        "micro_batch": micro,
        "global_batch": total,
        "seq": stated.whole_number("plan.seq") or keys.count("seq_length") or model.max_seq,
        "sequence_parallel": keys.flag("sequence_parallel") and tp > 1,
        "sharding": f"zero{stage}" if stage else "none",
        "recompute": "full" if keys.flag("checkpoint_activations") else "none",
    }
    if (count := keys.count("checkpoint_num_layers") or 1) > 1:
        assumed.append(f"every layer recomputes (checkpoint_num_layers {count} is how many share one checkpoint)")
    return plan_of(fields)


def _runtime(keys: Keys) -> Runtime:
    half = {"fp16": "fp16", "bfloat16": "bf16", "fp32": "fp32"}.get(keys.text("precision") or "", "")
    if not half:
        half = "bf16" if keys.get("bf16.enabled") is True else "fp16" if keys.get("fp16.enabled") is True else "fp16"
    reduce = "fp32" if keys.flag("fp32_allreduce") else half
    elements = keys.whole_number("zero_optimization.reduce_bucket_size") or 500_000_000
    listed = keys.get("attention_config") or []
    flash = "flash" in str(listed)
    fields: dict[str, Any] = {
        "precision": half,
        "weight_dtype": half,
        "gradient_dtype": half,
        "reduce_dtype": reduce,
        "master_weights": half != "fp32",
        "overlap_grad_reduce": keys.get("zero_optimization.overlap_comm") is True,
        "bucket": float(elements) * DTYPE_BYTES[reduce],
        "pad_vocab": keys.count("make_vocab_size_divisible_by") or 128,
        "attention": "flash" if flash else "fused_softmax" if keys.flag("scaled_upper_triang_masked_softmax_fusion") else "unfused",
        "fused_activation": keys.flag("bias_gelu_fusion"),
        "fused_rope": keys.flag("rope_fusion"),
    }
    return load_runtime("megatron-deepspeed", **fields)
