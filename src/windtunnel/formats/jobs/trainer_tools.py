"""Which tool on top of transformers' Trainer a configuration is for, and what that tool does where the configuration is silent.

trainer_tools.toml has the defaults, each with its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from windtunnel.base.files import table_beside

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
    """A tool of trainer_tools.toml; a section by version changes what is above it."""
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
