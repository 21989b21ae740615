"""Hugging Face's Trainer and what is built on it: Accelerate's configuration, TrainingArguments (also LLaMA-Factory's), Axolotl.

Keys: accelerate `commands/config/config_args.py` and `utils/dataclasses.py`; transformers `training_args.py`; axolotl
`utils/schemas/config.py`. Several files (Accelerate's and the arguments) come as one table of `parts`.

The runtime of a Trainer's configuration: precision and states, attention, loss, optimizer.

transformers `loss/loss_utils.py` (fp32 logits), `modeling_utils.py` (sdpa where the model has it, else eager), `training_args.py`;
Liger-Kernel `transformers/monkey_patch.py` and axolotl `integrations/{liger,cut_cross_entropy}`; TRL `sft_trainer.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs import trainer_keys
from windtunnel.formats.jobs.deepspeed import fields_of, left_in, precision_of, sharding_fields
from windtunnel.formats.jobs.hub_names import find_named, unknown_model
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.launched import KEY as LAUNCHED
from windtunnel.formats.jobs.launched import Launched
from windtunnel.formats.jobs.rl.trainer import UPDATE_ALONE
from windtunnel.formats.jobs.several import PARTS, plan_of
from windtunnel.formats.jobs.trainer_keys import TRL, Tool, first_count, is_on, lora_of, named_stage, optimizer_of, tool_of
from windtunnel.spec import Job, Model, Plan, Runtime, check, load_runtime

_ACCELERATE = {"distributed_type", "compute_environment", "fsdp_config", "megatron_lm_config"}
_ARGUMENTS = {"per_device_train_batch_size", "per_gpu_train_batch_size"}
_OF_TUNERS = {"finetuning_type", "stage", "cutoff_len", "lora_rank", "train_type", "tuner_type", "template", "do_train"}
_OF_TUNERS |= {"rlhf_type"}
"""Keys of LLaMA-Factory and ms-swift, of which a file has some beside its model."""
_SHARDING = {
    "FULL_SHARD": "fsdp",
    "SHARD_GRAD_OP": "zero2",
    "NO_SHARD": "none",
    "HYBRID_SHARD": "hsdp",
    "HYBRID_SHARD_ZERO2": "hsdp",
}
_SHARDING |= {"1": "fsdp", "2": "zero2", "3": "none", "4": "hsdp"}
_ULYSSES = ("sequence_parallel_size", "parallelism_config.parallelism_config_sp_size")
"""Sequence parallelism by all-to-alls of heads, as ms-swift, verl and 360-LLaMA-Factory have it (DeepSpeed-Ulysses)."""
_SEQUENCES = (
    "max_seq_length", "max_length", "cutoff_len", "sequence_len", "block_size", "model_max_length", "max_source_length",
    "max_seq_len", "seq_length", "seq_len", "max_len", "sequence_length", "context_length", "model_max_len",
)  # fmt: skip
_PACKED = ("packing", "neat_packing", "sample_packing", "padding_free", "block_size", "group_texts", "use_remove_padding")
"""Keys of packed samples; scripts with a block size cut one text into blocks (transformers' run_clm.py)."""


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is Accelerate's, the Trainer's or Axolotl's, or several of them."""
    listed = table.get(PARTS)
    tables = listed if isinstance(listed, list) and listed else [table]
    return all(isinstance(one, Mapping) and bool(_name(one)) for one in tables)


def _name(table: Mapping[str, Any]) -> str:
    keys = set(table)
    if "base_model" in keys and keys & {"micro_batch_size", "sequence_len", "adapter", "datasets"}:
        return "axolotl"
    named = "model_name_or_path" in keys or isinstance(table.get("model"), str)
    if keys & _ARGUMENTS or named and len(keys & _OF_TUNERS) >= 2:
        return "trainer"
    return "accelerate" if keys & _ACCELERATE and keys & {"num_processes", "mixed_precision", "num_machines"} else ""


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model (by its name on the hub, or --model), plan and runtime; with `on`, also a job on that job's cluster."""
    stated, assumed = stated or Stated(), list[str]()
    listed = table.get(PARTS)
    tables = listed if isinstance(listed, list) else [table]
    form = " and ".join(dict.fromkeys(_name(one) for one in tables))
    keys = Keys({key: value for one in tables for key, value in one.items()})
    tool = tool_of(keys.table, form)
    keys.get("verl")
    trainer_keys.say_named_accelerate(keys, assumed)
    if keys.get("rl_update"):
        assumed.append(UPDATE_ALONE)
    model, held = _model(keys, stated, assumed)
    if model.mtp_layers:
        assumed.append("no layers that predict further tokens: transformers' models leave them out")
    model = model.model_copy(update={"lora": lora_of(keys, tool, model, assumed, held), "mtp_layers": 0})
    gpus = _gpus(keys, stated, on, assumed)
    plan = _plan(keys, tool if form != "accelerate" else replace(tool, micro=1), model, gpus, stated, assumed)
    runtime = runtime_of(keys, tool, model, plan, _file(keys), assumed)
    if keys.get("num_processes") == 1 and tool is trainer_keys.UNSLOTH and stated.own_gpus is None:
        assumed.insert(0, "1 GPU, on which Unsloth trains unless a launcher starts more (--set cluster.gpus=N)")
    if plan.recompute != "none" and not _says_checkpointing(keys):
        assumed.append(f"gradient checkpointing, {tool.name}'s default (--set plan.recompute=none)")
    job = None
    if on is not None:
        cluster = on.cluster.model_copy(update={"gpus": gpus or on.cluster.gpus})
        steps = first_count(keys, ("max_steps",)) if keys.get("max_steps") != -1 else None
        nouns: dict[str, Any] = {"model": model, "plan": plan, "runtime": runtime, "cluster": cluster}
        tokens = float(steps * plan.global_batch * plan.seq) if steps else on.tokens
        job = check(Job(name=model.name, tokens=tokens, seed=on.seed, source=f"{form} configuration", **nouns))
    ignored = (*keys.left_over(), *left_in(_file(keys) or {}))
    return Imported(form, model, plan, runtime, job, keys.built(), ignored, tuple(assumed))


def _model(keys: Keys, stated: Stated, assumed: list[str]) -> tuple[Model, str]:
    """The model, and how the weights of its repository are packed, as `hub_names.HubName` says it."""
    named = keys.get("model")
    name = keys.text("base_model") or keys.text("model_name_or_path") or (named if isinstance(named, str) else None)
    name = name or keys.text("model_name")  # beside a model it is what an assistant calls itself
    keys.get("base_model_config")
    if stated.model is not None:
        return stated.model, ""
    path = "base_model" if "base_model" in keys.table else "model_name_or_path"
    if not name:
        raise SpecError(
            path, Nothing(), "a model of the catalogue", "Give the model beside it: --model NAME or --model CONFIG.JSON."
        )
    named = find_named(name)
    if named is None:
        raise unknown_model(path, name)
    assumed += [f"model {named.model.name} of the catalogue, for {name}", *named.notes]
    return named.model, named.packed


def _gpus(keys: Keys, stated: Stated, on: Job | None, assumed: list[str]) -> int | None:
    """GPUs that the user states, the configuration or its launcher, or of which some are taken; `assumed` says that."""
    keys.get(LAUNCHED)
    processes, nodes = first_count(keys, ("num_processes",)), first_count(keys, ("num_machines", "num_nodes"))
    per_node = first_count(keys, ("gpus_per_node", "num_gpus_per_node"))
    launcher = Launched.of_table(keys.table)
    if processes is not None or nodes is not None or per_node is not None:
        launcher = Launched(processes, nodes or launcher.nodes, per_node or launcher.per_node, launcher.unset)
    return stated.gpus_of(launcher, on, assumed, math.prod(_degrees(keys, stated)))


def _degrees(keys: Keys, stated: Stated) -> tuple[int, int, int]:
    """(tp, pp, cp)."""
    head, lm = "parallelism_config.parallelism_config_", "megatron_lm_config.megatron_lm_"
    tp = stated.whole_number("plan.tp") or first_count(keys, ("tensor_parallel_size", f"{head}tp_size", f"{lm}tp_degree")) or 1
    pp = stated.whole_number("plan.pp") or first_count(keys, (f"{lm}pp_degree",)) or 1
    cp = (
        stated.whole_number("plan.cp")
        or first_count(keys, ("context_parallel_size", *_ULYSSES, "sequence_parallel_degree", f"{head}cp_size"))
        or 1
    )
    return tp, pp, cp


def _plan(keys: Keys, tool: Tool, model: Model, gpus: int | None, stated: Stated, assumed: list[str]) -> Plan:
    tp, pp, cp = _degrees(keys, stated)
    head = "parallelism_config.parallelism_config_"
    if gpus is None:
        raise SpecError("num_processes", Nothing(), "how many GPUs: --set cluster.gpus=N, or a machine with --on")
    if gpus % (tp * pp * cp):
        raise SpecError("num_processes", gpus, f"a multiple of tp x pp x cp = {tp * pp * cp}")
    dp = gpus // (tp * pp * cp)
    inside = ("deepspeed.train_micro_batch_size_per_gpu",) if _file(keys) is not None else ()
    batches = ("per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size", *inside)
    micro = stated.whole_number("plan.micro_batch") or first_count(keys, batches)
    if micro is None:
        micro = tool.micro
        assumed.append(
            f"micro batch {micro}, {tool.name}'s default (per_device_train_batch_size left out; --set plan.micro_batch=N)"
        )
    accumulated = ("gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps")
    micro *= trainer_keys.sequences_of_a_sample(keys, assumed)
    steps = first_count(keys, (*accumulated, *([f"deepspeed.{accumulated[0]}"] if inside else []))) or 1
    if tool.least_batch > micro * dp and keys.get(accumulated[0]) is None:
        steps = math.ceil(tool.least_batch / micro / dp)
        assumed.append(f"{steps} micro batches a step, {tool.name}'s default: at least {tool.least_batch} samples")
    if (batch := first_count(keys, ("rl_batch",))) is not None:
        steps = max(1, batch // (dp * micro))
    sequence = stated.whole_number("plan.seq") or first_count(keys, _SEQUENCES)
    if sequence is None:
        sequence = tool.seq
        assumed.append(
            f"sequences of {sequence} tokens, {tool.name}'s default "
            f"(none of {', '.join(_SEQUENCES[:4])} is there; --set plan.seq=N)"
        )
    padding = _padding(keys, tool, sequence, assumed)
    group = first_count(keys, ("dp_shard_size", f"{head}dp_shard_size"))
    sharding = _sharding(keys, assumed)
    recompute = _recomputes(keys, tool)
    return plan_of(
        {
            "tp": tp,
            "pp": pp,
            "cp": cp,
            "cp_kind": "a2a" if cp > 1 and _by_heads(keys, model, cp) else None,
            "dp": dp,
            "micro_batch": micro,
            "global_batch": stated.whole_number("plan.global_batch") or micro * steps * dp,
            "seq": sequence,
            "padding": padding,
            "sharding": "hsdp" if group and sharding == "fsdp" and group < dp else sharding,
            "shard_group": group
            if group and group < dp and sharding == "fsdp"
            else 8
            if sharding == "hsdp" and dp % 8 == 0
            else None,
            "recompute": "full" if recompute else "none",
            "offload": _offload(keys, model if recompute else None),
            **(_of_file(keys, model if recompute else None, assumed) if sharding.startswith("zero") else {}),
        }
    )


def _padding(keys: Keys, tool: Tool, sequence: int, assumed: list[str]) -> str | None:
    """What samples that are not packed are padded to: the longest of a micro batch, or all positions.

    transformers' collators and those of TRL, LLaMA-Factory, ms-swift and Axolotl pad to the longest; Axolotl's
    pad_to_sequence_len, and verl's SFT without use_remove_padding (verl/utils/dataset/multiturn_sft_dataset.py), to the sequence.
    """
    rest = UPDATE_ALONE in assumed or tool.name == "LLaMA-Factory" and keys.get("stage") == "pt" and keys.get("packing") is None
    packed = any([keys.get(name) not in (None, False, "false", "no") for name in _PACKED])
    full = not packed and (is_on(keys, "pad_to_sequence_len") or tool is trainer_keys.VERL and "verl" in keys.table)
    if not packed and not rest:
        to = f"all {sequence} positions" if full else "the longest of a micro batch"
        assumed.append(
            f"every sample fills its {sequence} tokens: without packing, shorter ones are padded to {to} "
            f"(--set 'plan.sample=MEAN~CV<{sequence}' counts padding as such)"
        )
    return "full" if full else None


def _by_heads(keys: Keys, model: Model, cp: int) -> bool:
    """Whether sequence parallelism is by heads: it is asked for by that name, and divides the heads of keys too."""
    return first_count(keys, _ULYSSES) is not None and model.heads % cp == 0 and (model.kv_heads or model.heads) % cp == 0


def _file(keys: Keys) -> Mapping[str, Any] | None:
    """The DeepSpeed configuration, where its file was opened or it stands inside."""
    table = keys.table.get("deepspeed")
    return table if isinstance(table, Mapping) else None


def _sharding(keys: Keys, assumed: list[str]) -> str:
    """DeepSpeed's stage, FSDP's strategy, or plain data parallelism."""
    stage = first_count(keys, ("deepspeed_config.zero_stage", "zero_stage"))
    file = keys.get("deepspeed") or keys.get("deepspeed_config.deepspeed_config_file")
    if stage is None and isinstance(file, Mapping):
        value = file.get("zero_optimization", {})
        stage = value.get("stage", 0) if isinstance(value, Mapping) else 0
    if stage is None and isinstance(file, str) and (stage := named_stage(file)) is not None:
        assumed.append(f"ZeRO {stage}, as the name {file} says: the file is not beside this one")
    if stage is not None:
        if stage not in (0, 1, 2, 3):
            raise SpecError("zero_stage", stage, "0, 1, 2 or 3")
        return f"zero{stage}" if stage else "none"
    strategy = keys.get("fsdp_config.fsdp_sharding_strategy")
    version = first_count(keys, ("fsdp_version", "fsdp_config.fsdp_version"))
    listed = keys.get("fsdp")
    words = " ".join(map(str, listed)) if isinstance(listed, list) else str(listed or "")
    if strategy is None and isinstance(keys.get("fsdp_config.reshard_after_forward"), bool):
        strategy = "FULL_SHARD"
    if strategy is not None:
        if str(strategy).upper() not in _SHARDING:
            raise SpecError("fsdp_config.fsdp_sharding_strategy", strategy, "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD")
        return _SHARDING[str(strategy).upper()]
    for word, ours in (("hybrid_shard", "hsdp"), ("shard_grad_op", "zero2"), ("full_shard", "fsdp")):
        if word in words:
            return ours
    fsdp = keys.text("distributed_type") == "FSDP" or version is not None or keys.get("fsdp_config")
    if keys.text("distributed_type") == "DEEPSPEED":
        assumed.append("ZeRO 2: deepspeed_config states no stage")
        return "zero2"
    return "fsdp" if fsdp else "none"


_CHECKPOINTING = ("gradient_checkpointing", "use_gradient_checkpointing", "fsdp_config.fsdp_activation_checkpointing",
                  "fsdp_config.activation_checkpointing")  # fmt: skip


def _says_checkpointing(keys: Keys) -> bool:
    return any([keys.get(path) is not None for path in (*_CHECKPOINTING, "disable_gradient_checkpointing")])


def _recomputes(keys: Keys, tool: Tool) -> bool:
    """Whether layers run again in backward. LLaMA-Factory turns it on whatever `gradient_checkpointing` says."""
    off = is_on(keys, "disable_gradient_checkpointing")
    stated = [is_on(keys, path) for path in _CHECKPOINTING]
    if any(stated):
        return True
    if tool.name == "LLaMA-Factory":
        return not off
    says = any([keys.get(path) is not None for path in _CHECKPOINTING[:2]])
    return tool.checkpoints and not says


def _offload(keys: Keys, recomputing: Model | None) -> dict[str, Any]:
    """What leaves the GPU. `recomputing`: the model, if its layers keep only their inputs, which some tools copy out."""
    devices = {"cpu": "host", "nvme": "nvme"}
    optimizer, parameters = (keys.get(f"deepspeed_config.offload_{name}_device") for name in ("optimizer", "param"))
    file = keys.get("deepspeed")
    if optimizer is None and isinstance(file, str) and trainer_keys.names_offload(file):  # zero3_offload
        optimizer, parameters = "cpu", "cpu" if named_stage(file) == 3 else None
    whole = is_on(keys, "fsdp_config.fsdp_offload_params") or is_on(keys, "fsdp_config.offload_params")
    fields: dict[str, Any] = {"optimizer": devices.get(str(optimizer), "none"), "parameters": devices.get(str(parameters), "none")}
    if whole:
        fields = {"optimizer": "host", "parameters": "host"}
    named = {
        str(keys.get(path)).lower() for path in ("gradient_checkpointing", "use_gradient_checkpointing", "activation_offloading")
    }
    out = bool(named & {"unsloth", "offload", "legacy", "hidden_states"}) or is_on(keys, "activation_offloading")
    out = is_on(keys, "use_unsloth_gc") or out
    return fields | ({"activations": recomputing.layers} if out and recomputing is not None else {})


def _of_file(keys: Keys, recomputing: Model | None, assumed: list[str]) -> dict[str, Any]:
    """Fields of a plan that the DeepSpeed configuration states."""
    file = _file(keys)
    if file is None:
        return {}
    fields = fields_of(file, assumed)
    activations = _offload(keys, recomputing).get("activations", 0)
    return {**fields, "offload": fields["offload"].model_copy(update={"activations": activations})}


_LIGER = ("use_liger_kernel", "use_liger", "enable_liger_kernel")
_LIGER_PARTS = {
    "fused_rmsnorm": ("liger_rms_norm",),
    "fused_rope": ("liger_rope",),
    "fused_activation": ("liger_glu_activation", "liger_swiglu"),
}
_CUT = "cut_cross_entropy"
_EXPERTS = {"moe_permute_fusion": False, "moe_grouped_gemm": "each", "moe_host_wait": True, "moe_router_dtype": "bf16"}
"""transformers 4 runs experts one after the other, for those that got a token (models/qwen3_moe, mixtral, gpt_oss)."""


def runtime_of(keys: Keys, tool: Tool, model: Model, plan: Plan, file: Mapping[str, Any] | None, assumed: list[str]) -> Runtime:
    """`file`: the DeepSpeed configuration, where there is one."""
    precision = _precision(keys, tool, file or {})
    fields: dict[str, Any] = {"precision": precision, **optimizer_of(keys, assumed)}
    fields |= _attention(keys, model, assumed)
    fields |= _liger(keys)
    fields |= _loss(keys, tool, assumed)
    fields |= _loading(keys, tool, model, plan)
    if model.experts:
        fields |= _EXPERTS
        if (model.attention_sinks or model.clamped_activation) and not is_on(keys, "use_kernels"):
            fields["moe_weights_by_index"] = True
            assumed.append(
                "experts index one tensor of all their weights, as GPT-OSS does in transformers 4: copies and full-size gradients "
                "(--set runtime.moe_weights_by_index=false for kernels of megablocks, use_kernels: true)"
            )
    compiled = is_on(keys, "torch_compile") or str(keys.get("dynamo_config.dynamo_backend") or "no").lower() not in ("no", "none")
    deepspeed = plan.sharding.startswith("zero") and (keys.get("deepspeed") or keys.get("deepspeed_config"))
    if deepspeed:
        half = precision if precision in ("bf16", "fp16") else "fp32"
        if file is not None:
            fields |= sharding_fields(Keys(file), half, half, model.hidden)
        return load_runtime("deepspeed", tool=tool.entry, **fields)
    fields["launch"] = "compile" if compiled else "eager"
    if plan.shards_parameters and False in (
        keys.get("fsdp_config.fsdp_reshard_after_forward"),
        keys.get("fsdp_config.reshard_after_forward"),
    ):
        fields["reshard_after_forward"] = False
    if plan.shards_parameters and _second_fsdp(keys):  # FSDP2 copies to and from its buffers, FSDP1 has views of a flat one
        fields["sharding_copies"] = True
    fields |= _states(keys, tool, plan, precision, assumed)
    if model.lora is not None and tool.loads == "fp32" and not _dtype(keys):
        fields |= {"weight_dtype": "fp32", "master_weights": False}
        assumed.append(f"frozen weights in fp32, as {tool.name} loads them without dtype: bfloat16")
    return load_runtime(tool.entry, **fields)


def _loading(keys: Keys, tool: Tool, model: Model, plan: Plan) -> dict[str, Any]:
    """How transformers loads the model where a step shards it; nothing where that is not known."""
    if not plan.shards_parameters:
        return {}
    names = ("fsdp_config.fsdp_cpu_ram_efficient_loading", "fsdp_config.cpu_ram_efficient_loading", "cpu_ram_efficient_loading")
    first = any([is_on(keys, name) for name in names])
    fsdp = plan.sharding in ("fsdp", "hsdp")
    packed = model.lora is not None and model.lora.base != "none"
    if packed and not (fsdp and first):
        return {"loading": "packed", "kbit_casts": tool in (trainer_keys.AXOLOTL, trainer_keys.OLD_TRL, trainer_keys.OLDEST_TRL)}
    if not fsdp or packed or not keys.get("fsdp_config") and not keys.get("fsdp"):
        return {}  # ZeRO 3 builds the model in parts
    narrow = tool.loads == "bf16" and tool.entry != "huggingface" or _dtype(keys) in ("bfloat16", "float16", "bf16", "fp16")
    return {"loading": "first" if first else "each", "load_dtype": "bf16" if narrow else "fp32"}


def _precision(keys: Keys, tool: Tool, file: Mapping[str, Any]) -> str:
    mixed = keys.text("mixed_precision") or ""
    flags, dtype = {name: keys.get(name) for name in ("bf16", "fp16", "tf32")}, _dtype(keys)
    if mixed in ("bf16", "fp16", "fp8"):
        return mixed
    if half := precision_of(file):
        return half
    on = ("auto", True, "true", "True", "full")
    if flags["bf16"] in on:
        return "bf16"
    if flags["fp16"] in on:
        return "fp16"
    newer = tool.loads == "fp32" and tool.checkpoints  # TRL since 0.22
    if (tool is trainer_keys.SWIFT or newer) and flags["bf16"] is None:  # both turn it on unless fp16 is
        return "bf16" if newer or dtype not in ("float16", "float32") else {"float16": "fp16"}.get(dtype, "fp32")
    return "tf32" if flags["tf32"] is True else "fp32"


def _dtype(keys: Keys) -> str:
    """The dtype in which the model is loaded, where it is stated; "auto" is that of its files, 16 bits."""
    named = keys.get("torch_dtype") or keys.get("dtype") or ""
    return "bfloat16" if named == "auto" else str(named)


def _second_fsdp(keys: Keys) -> bool:
    """Whether the configuration is of FSDP2: it says so, or has reshard_after_forward as a switch."""
    stated = [keys.get(path) for path in ("fsdp_version", "fsdp_config.fsdp_version")]
    switches = [keys.get(f"fsdp_config.{name}") for name in ("reshard_after_forward", "fsdp_reshard_after_forward")]
    return any(str(value) == "2" for value in stated) or any(isinstance(value, bool) for value in switches)


def _states(keys: Keys, tool: Tool, plan: Plan, precision: str, assumed: list[str]) -> dict[str, Any]:
    """Trained weights: fp32 with autocast (or FSDP's fp32 shards), or the 16 bits in which they are loaded."""
    if precision not in ("bf16", "fp16"):
        return {"master_weights": False, "gradient_dtype": "fp32", "exp_avg_dtype": "fp32", "exp_avg_sq_dtype": "fp32"}
    accelerate_casts = plan.shards_parameters and tool.entry != "axolotl"  # accelerate's FSDP casts what is trained to fp32
    half = is_on(keys, "pure_bf16") or tool.half or _dtype(keys) in ("bfloat16", "float16", "bf16", "fp16")
    if not half or accelerate_casts:
        fields: dict[str, Any] = {"master_weights": True, "gradient_dtype": "fp32"}
        moments = "fp32"
    else:
        fields, moments = {"master_weights": False, "weight_dtype": precision, "gradient_dtype": precision}, precision
        assumed.append(f"trained weights, gradients and moments in {precision}, as {tool.name} loads them, without fp32 copies")
    for name in ("exp_avg_dtype", "exp_avg_sq_dtype"):
        fields[name] = moments
    eight = "8bit" in str(keys.get("optim") or keys.get("optimizer") or "").lower()
    return fields | ({"exp_avg_dtype": "int8", "exp_avg_sq_dtype": "int8"} if eight else {})


def _attention(keys: Keys, model: Model, assumed: list[str]) -> dict[str, Any]:
    """Kernels of `attn_implementation` and its other spellings; transformers' own choice is sdpa where the model has it."""
    named = next(
        (
            str(value).lower()
            for path in ("attn_implementation", "attn_impl", "flash_attn")
            if (value := keys.get(path)) not in (None, "", "auto", True, False)
        ),
        "",
    )
    switches = {
        "flash_attention": "flash_attention_2",
        "sdp_attention": "sdpa",
        "eager_attention": "eager",
        "use_flash_attn": "fa2",
    }
    for path, meaning in switches.items():
        named = meaning if is_on(keys, path) and not named else named
    if not named and model.attention_sinks:
        assumed.append("eager attention: transformers has no sdpa for attention with sinks (attn_implementation)")
        named = "eager"
    if named in ("eager", "disabled"):
        return {"attention": "unfused"}
    fields: dict[str, Any] = {"attention": "flash"}
    if "flash_attention_4" in named or "flash-attn4" in named:
        assumed.append("the fastest attention that the catalogue has for the GPU, in place of FlashAttention 4")
        return fields | {"attention_library": "cudnn"}
    if any(word in named for word in ("flash_attention_3", "flash-attn3", "fa3", "flash_attn_3")):
        return fields | {"attention_library": "fa3"}
    if named.startswith(("flash", "fa2")) or "flash-attn" in named:
        return fields | {"attention_library": "fa2"}
    return fields


def _liger(keys: Keys) -> dict[str, Any]:
    """Liger-Kernel's norms, RoPE and activation, all at once or one by one."""
    everything = any([is_on(keys, name) for name in _LIGER])
    return {field: True for field, paths in _LIGER_PARTS.items() if any([is_on(keys, path) for path in paths]) or everything}


def _loss(keys: Keys, tool: Tool, assumed: list[str]) -> dict[str, Any]:
    """How much of the logits is in memory, and in which format."""
    plugins = keys.get("plugins")
    listed = [str(one) for one in plugins] if isinstance(plugins, list) else []
    cut = is_on(keys, _CUT) or any("CutCrossEntropy" in one for one in listed) and keys.get(_CUT) is not False
    liger = any([is_on(keys, name) for name in (*_LIGER, "liger_fused_linear_cross_entropy")])
    materialised = is_on(keys, "upcast_lmhead_output")  # LLaMA-Factory: the whole tensor in fp32
    slices = any([is_on(keys, name) for name in ("chunked_cross_entropy", "flash_attn_cross_entropy", "liger_cross_entropy")])
    kind = str(keys.get("loss_type") or ("nll" if tool is not TRL or liger else "chunked_nll"))
    if cut:
        return {"cross_entropy": "linear"}
    if liger and not materialised:
        return {"cross_entropy": "chunked"}
    if kind == "chunked_nll":
        if "loss_type" not in keys.table:
            assumed.append(
                "loss_type chunked_nll, TRL's default since June 2026: no logits in memory "
                "(--set runtime.cross_entropy=vocab_parallel)"
            )
        return {"cross_entropy": "linear"}
    if slices:  # kernels that read 16-bit logits
        return {"cross_entropy": "vocab_parallel", "fused_cross_entropy": True, "fp32_logits": False}
    return {"cross_entropy": "vocab_parallel", "fused_cross_entropy": False, "fp32_logits": True}
