"""Keys that Accelerate, the Trainer and Axolotl share: numbers, switches, optimizers, adapters.

Which tool on top of transformers' Trainer a configuration is for, and what that tool does where the configuration is silent.

trainer_keys.toml has the defaults, each with its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.keys import Keys
from windtunnel.spec.model import Lora, Model

Attention = Literal["", "eager", "sdpa", "fa2", "fa3"]


@dataclass(frozen=True)
class Tool:
    """Defaults of a tool. `entry`: its catalogue entry. `seq`: tokens of a sequence. `micro`: samples of a micro batch.
    `least_batch`: samples of a step, for which gradients are accumulated where that is not stated. `checkpoints`: gradient
    checkpointing is on unless turned off. Of adapters: `rank`, `adapts_all` (every linear module), `dropout`. `half`: trained
    weights are kept in the 16 bits in which they are loaded; `loads`: the dtype of weights where none is named. `double_quant`: of
    4-bit weights."""

    name: str
    entry: str = "huggingface"
    seq: int = 2048
    micro: int = 8
    least_batch: int = 0
    checkpoints: bool = False
    rank: int = 8
    adapts_all: bool = False
    dropout: bool = False
    half: bool = False
    loads: Literal["fp32", "bf16"] = "bf16"
    double_quant: bool = False


def _tool(name: str, version: str = "") -> Tool:
    """A tool of trainer_keys.toml; a section by version changes what is above it."""
    said = table_beside(__file__)[name]
    own = {**said, **(said[version] if version else {})}
    return Tool(**{field: value for field, value in own.items() if field != "source" and not isinstance(value, dict)})


TRAINER, LLAMA_FACTORY, AXOLOTL, SWIFT, UNSLOTH, TRL, VERL = map(
    _tool, ("trainer", "llama_factory", "axolotl", "swift", "unsloth", "trl", "verl")
)
OF_UPDATES = {tool.name: tool for tool in map(_tool, ("verl", "openrlhf", "nemo_rl", "areal", "roll"))}
"""Tools by the name that the table of an update gives."""
OLD_TRL, OLDEST_TRL = _tool("trl", "before 0.24"), _tool("trl", "before 0.20")

_OF_LLAMA_FACTORY = {
    "finetuning_type", "cutoff_len", "disable_gradient_checkpointing", "flash_attn", "enable_liger_kernel", "quantization_bit",
    "use_unsloth_gc", "upcast_layernorm", "pure_bf16", "dataset_dir",
}  # fmt: skip
_OF_SWIFT = {"train_type", "tuner_type", "sft_type", "attn_impl", "quant_bits", "freeze_vit", "freeze_aligner", "freeze_llm"}
_OF_TRL = {
    "max_length", "max_seq_length", "packing", "packing_strategy", "use_peft", "loss_type", "dataset_text_field", "padding_free",
    "assistant_only_loss", "completion_only_loss", "use_bnb_nested_quant", "lora_target_parameters", "chat_template_path",
    "activation_offloading", "dataset_num_proc", "max_prompt_length", "num_generations",
}  # fmt: skip


def tool_of(table: Mapping[str, Any], form: str) -> Tool:
    """The tool that a configuration is for, by keys that no other tool has. `form`: as the trainer's reader names it."""
    keys = set(table)
    if "axolotl" in form:
        return AXOLOTL
    if "verl" in keys or "rl_update" in keys:
        return OF_UPDATES.get(str(table.get("rl_update")), VERL)
    if keys & _OF_LLAMA_FACTORY:
        return LLAMA_FACTORY
    if keys & _OF_SWIFT or isinstance(table.get("model"), str):
        return SWIFT
    if table.get("use_gradient_checkpointing") is not None:
        return UNSLOTH
    if not keys & _OF_TRL:
        return TRAINER
    if "max_seq_length" in keys:  # max_length since 0.20
        return OLDEST_TRL
    return OLD_TRL if "torch_dtype" in keys else TRL  # dtype since September 2025 (#4000)


_OPTIMIZERS = {"adam": "adam", "adafactor": "adafactor", "sgd": "sgd", "lamb": "lamb", "muon": "muon"}
LINEARS = {
    "q_proj": "linear_qkv",
    "k_proj": "linear_qkv",
    "v_proj": "linear_qkv",
    "qkv_proj": "linear_qkv",
    "o_proj": "linear_proj",
    "output_proj": "linear_proj",
    "gate_proj": "linear_fc1",
    "up_proj": "linear_fc1",
    "gate_up_proj": "linear_fc1",
    "down_proj": "linear_fc2",
}


_TUNED = frozenset({
    "", "full", "none", "freeze", "oft", "adalora", "adapter", "vera", "boft", "fourierft", "reft", "bone", "llamapro",
    "longlora", "llama-adapter", "ia3", "prompt", "prefix", "galore", "badam", "eva", "dummy", "custom", "ppo", "rslora",
})  # fmt: skip
"""Ways to tune that LLaMA-Factory, Axolotl, ms-swift and PEFT know by name; another word is a slip of the pen."""
_PAIRED = frozenset({"dpo", "orpo", "simpo", "ipo", "cpo", "rm", "reward"})
_PREFERENCES = frozenset({*_PAIRED, "kto", "ppo", "grpo", "gkd"})
_TARGET_KEYS = ("lora_target_modules", "lora_target", "target_modules")


def first_count(keys: Keys, paths: Sequence[str]) -> int | None:
    """The first whole number of 1 or more at one of the paths; numbers in quotes count. SpecError for anything else."""
    values = [(path, keys.get(path)) for path in paths]
    for path, value in values:
        if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
            value = int(value)
        if value in (None, "auto", 0):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
            raise SpecError(path, value, "a whole number of 1 or more")
        return value
    return None


def sequences_of_a_sample(keys: Keys, assumed: list[str]) -> int:
    """Sequences that a sample of the batch is: two, chosen and rejected, where a stage trains on preferences in pairs
    (LLaMA-Factory's `stage`, ms-swift's `rlhf_type`, Axolotl's `rl`)."""
    named = next((str(value).lower() for path in ("stage", "rlhf_type", "rl") if (value := keys.get(path))), "")
    for path in ("pref_beta", "pref_loss", "pref_ftx", "beta", "rpo_alpha", "dpo_beta"):
        keys.get(path) if named in _PREFERENCES else None
    if named in _PAIRED:
        assumed.append(f"{named}: a sample is two sequences, chosen and rejected; the reference model's forward pass is left out")
        return 2
    if named in _PREFERENCES:
        assumed.append(f"{named}: the update of the policy alone, without the reference model and without generation")
    return 1


def is_on(keys: Keys, path: str) -> bool:
    """Whether a switch is on; text such as "true" counts."""
    value = keys.get(path)
    return value is True or isinstance(value, str) and value.lower() in ("true", "yes", "unsloth", "offload")


def named_stage(name: str) -> int | None:
    """The stage in a file name such as `zero3_bf16.json`."""
    match = re.search(r"(?:zero|stage|z)[_-]?([0-3])", name.rpartition("/")[2].lower())
    return int(match[1]) if match else None


ABSENT = "accelerate_file"
"""Key of a table whose launcher names a file of Accelerate's that is not beside the script."""


def of_named_accelerate(name: str) -> dict[str, Any]:
    """What the name of a file of Accelerate's says: `fsdp_config.yaml`, `deepspeed_zero3.yaml`, `single_gpu.yaml`."""
    words = name.rpartition("/")[2].lower()
    stage, offloads = named_stage(words), {"offload_optimizer_device": "cpu"} if names_offload(words) else {}
    if "fsdp" in words:
        return {"distributed_type": "FSDP", **({"fsdp_config": {"fsdp_offload_params": True}} if offloads else {})}
    if stage is not None:
        parameters = {"offload_param_device": "cpu"} if offloads and stage == 3 else {}
        return {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": stage, **offloads, **parameters}}
    return {"num_processes": 1} if re.search(r"single[_-]?gpu", words) else {}


def say_named_accelerate(keys: Keys, assumed: list[str]) -> None:
    """Says what is taken from the name of a file that is not there."""
    name = keys.get(ABSENT)
    if isinstance(name, str) and (said := of_named_accelerate(name)):
        took = {"FSDP": "FSDP", "DEEPSPEED": "DeepSpeed"}.get(str(said.get("distributed_type")), "one process")
        assumed.append(f"{took}, as the name {name} says: the file is not beside this one")
    elif isinstance(name, str):
        assumed.append(f"plain data parallelism: {name} is not beside this one, which says what is sharded (--set plan.sharding)")


def names_offload(file: str) -> bool:
    """Whether the name of a file says that it offloads, as `zero3_offload.json` does and `stage3_no_offloading.conf` does not."""
    return re.search(r"(?<!no_)(?<!no-)(?<!no)(?<!without_)(?<!wo_)offload", file.rpartition("/")[2].lower()) is not None


def optimizer_of(keys: Keys, assumed: list[str]) -> dict[str, Any]:
    """Fields of the runtime for names such as adamw_torch_fused or adamw_bnb_8bit."""
    named = keys.get("optim") or keys.get("optimizer") or "adamw"
    name = str(named).lower()
    kind = next((ours for word, ours in _OPTIMIZERS.items() if word in name), None)
    if kind is None:
        kind = "adam"
        assumed.append(f"optimizer adam in place of {name[:60]}")
    fields: dict[str, Any] = {"optimizer": kind}
    if "paged" in name:
        assumed.append("the optimizer's pages stay on the GPU: a paged optimizer moves some to the host where memory runs out")
    # one kernel: torch's fused Adam, bitsandbytes, torchao's compiled step, Apex; adamw_torch is a chain of foreach kernels
    fields["fused_optimizer"] = name in ("adamw", "adam") or any(
        word in name for word in ("fused", "bnb", "8bit", "4bit", "paged", "apex")
    )
    if "8bit" in name:
        fields |= {"exp_avg_dtype": "int8", "exp_avg_sq_dtype": "int8"}
    return fields


def usual_tuner(kind: str, assumed: list[str]) -> str:
    """The way to tune that stands for ms-swift's `lora_llm`, adapters of the decoder beside a whole encoder; others as they are."""
    if kind != "lora_llm":
        return kind
    assumed.append("adapters (lora_llm); that the encoder of images is trained whole is not modelled")
    return "lora"


def lora_of(keys: Keys, tool: Tool, model: Model, assumed: list[str], held: str = "") -> Lora | None:
    """Adapters of PEFT: rank, target modules, and the format of the frozen weights; None where everything is trained. `held`: the
    format that the repository holds them in, as its name says."""
    kinds = [keys.get(path) for path in ("adapter", "finetuning_type", "train_type", "tuner_type")]
    kind = usual_tuner(next((str(value).lower() for value in kinds if value), ""), assumed)
    peft = any([is_on(keys, "use_peft"), is_on(keys, "use_peft_lora")])  # TRL's switch, and that of PEFT's example
    rank = first_count(keys, ("lora_r", "lora_rank"))
    listed = next((keys.get(path) for path in _TARGET_KEYS if keys.get(path) is not None), None)
    everything = is_on(keys, "lora_target_linear")
    if not kind and tool in (LLAMA_FACTORY, SWIFT):  # their default
        kind = "lora"
        assumed.append(f"adapters (lora), {tool.name}'s default")
    packed = base_of(keys, tool, kind, assumed)
    adapters = kind in ("lora", "qlora", "dora") or peft or tool is UNSLOTH and rank is not None
    if kind == "dora" or is_on(keys, "use_dora") or is_on(keys, "peft_use_dora"):
        assumed.append("adapters without DoRA's magnitudes, which are not modelled")
    if not adapters:
        if kind not in _TUNED:
            raise SpecError("adapter" if keys.get("adapter") else "finetuning_type", kind[:40], "lora, qlora, full")
        if kind not in ("", "full", "none"):
            assumed.append(f"all weights are trained: {kind[:40]} is not modelled (--set model.lora.rank=N for adapters)")
        if packed:
            raise SpecError(
                "load_in_4bit", True, "adapters beside it (lora_r, adapter: qlora): weights of 4 or 8 bits are not trained"
            )
        if held not in ("", "16"):
            assumed.append(f"weights of 16 bits: those of the name ({held}) are packed, and packed weights are not trained")
        return None
    packed = packed or _held_base(held, assumed)
    targets = _targets_of(listed, everything or tool.adapts_all and listed is None, assumed)
    if keys.get("lora_target_parameters") or keys.get("target_parameters"):
        assumed.append("no adapters on parameters of experts (target_parameters): they are not modelled")
    dropout = keys.get("lora_dropout")
    if rank is None:
        assumed.append(f"adapters of rank {tool.rank}, {tool.name}'s default (--set model.lora.rank=N)")
    if listed is None and tool.adapts_all and not everything:
        assumed.append(f"adapters on all linear modules, {tool.name}'s default")
    fields: dict[str, Any] = {"rank": rank or tool.rank, "targets": targets, "separate": True, **packed}
    stated = isinstance(dropout, (int, float)) and not isinstance(dropout, bool)
    fields["dropout"] = dropout > 0 if stated else tool.dropout
    if model.experts:
        fields["experts"] = "linear" if tool is UNSLOTH else experts_of(model)
        reached = fields["experts"] == "linear" and ({"linear_fc1", "linear_fc2"} & set(targets) or packed)
        if reached:
            assumed.append(
                "experts are linear modules, as in transformers 4, which adapters and quantisation reach; "
                "transformers 5 has them in one tensor: --set model.lora.experts=parameters"
            )
    return Lora.model_validate(fields)


def experts_of(model: Model) -> str:
    """What a mixture's experts are in transformers: GPT-OSS (attention with sinks, a clamped activation) and Llama 4 have them in
    one tensor in all versions, others as linear modules before version 5."""
    fused = model.attention_sinks or model.clamped_activation or model.name.startswith("llama4")
    return "parameters" if fused else "linear"


def base_of(keys: Keys, tool: Tool, kind: str, assumed: list[str]) -> dict[str, Any]:
    """Fields of Lora for weights that bitsandbytes packs: LLaMA-Factory's quantization_bit, ms-swift's quant_bits, the other tools'
    load_in_4bit and load_in_8bit; empty without."""
    bits = first_count(keys, ("quantization_bit", "quant_bits"))
    four, eight = (any([is_on(keys, f"load_in_{n}bit"), is_on(keys, f"use_{n}bit_quantization")]) for n in (4, 8))
    method = str(keys.get("quantization_method") or keys.get("quant_method") or "bnb").lower()
    if bits is None:
        bits = 4 if four or kind == "qlora" and not eight else 8 if eight else None
    if bits is None:
        return {}
    if bits not in (4, 8):
        raise SpecError("quantization_bit", bits, "4 or 8", "Fewer bits (HQQ, AQLM) are not modelled.")
    if method not in ("bnb", "bitsandbytes"):
        assumed.append(f"{bits}-bit weights as bitsandbytes packs them, in place of {method}")
    double = [
        keys.get(path) for path in ("bnb_4bit_use_double_quant", "double_quantization", "use_bnb_nested_quant", "use_nested_quant")
    ]
    more = keys.get("bnb_config_kwargs")  # Axolotl
    more = more if isinstance(more, Mapping) else {}
    stated = next((value for value in (more.get("bnb_4bit_use_double_quant"), *double) if isinstance(value, bool)), None)
    kinds = [keys.get(path) for path in ("bnb_4bit_quant_type", "quantization_type")]
    named = next((str(value).lower() for value in (more.get("bnb_4bit_quant_type"), *kinds) if value is not None), "nf4")
    names = ("bnb_4bit_quant_storage", "bnb_4bit_quant_storage_dtype")
    storage = str(more.get(names[0]) or next((value for name in names if (value := keys.get(name))), ""))
    keys.get("bnb_4bit_compute_dtype")
    if bits == 8:
        return {"base": "int8", "base_sharded": False}
    if named not in ("nf4", "fp4"):
        raise SpecError("bnb_4bit_quant_type", named, "nf4, fp4")
    cut = tool in (LLAMA_FACTORY, AXOLOTL) or storage.startswith(("bfloat", "float", "bf16", "fp"))
    return {"base": named, "double_quant": tool.double_quant if stated is None else stated, "base_sharded": cut}


def _held_base(held: str, assumed: list[str]) -> dict[str, Any]:
    """Fields of Lora for weights that the repository holds packed: transformers loads them as its quantization_config says."""
    if held in ("", "16"):
        return {}
    if held in ("nf4", "int4"):
        what = "bitsandbytes packs them" if held == "nf4" else "nf4, in place of AWQ's or GPTQ's 4 bits"
        assumed.append(f"frozen weights as the model's name says: {what} (--set model.lora.base=none for 16 bits)")
        return {"base": "nf4", "double_quant": held == "nf4", "base_sharded": False}
    if held == "int8":
        assumed.append("frozen weights as the model's name says: 8 bits (--set model.lora.base=none for 16 bits)")
        return {"base": "int8", "base_sharded": False}
    assumed.append(f"frozen weights of 16 bits: {held} of the model's name is unpacked when it is loaded")
    return {}


def _targets_of(listed: object, everything: bool, assumed: list[str]) -> list[str]:
    words = listed.split(",") if isinstance(listed, str) else listed if isinstance(listed, list) else []
    targets = {LINEARS[word.strip()] for word in map(str, words) if word.strip() in LINEARS}
    if everything or any(str(word).strip().lower() in ("all", "all-linear") for word in words):
        targets = set(LINEARS.values())
    if not targets:
        targets = {"linear_qkv"}
        assumed.append("adapters on the query, key and value projections (no target module is named)")
    return sorted(targets)
