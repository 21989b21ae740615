"""Which tool on top of transformers' Trainer a configuration is for, and what that tool does where the configuration is silent.

Read at: LLaMA-Factory ff6d4d12 (hparams/model_args.py, data_args.py, finetuning_args.py, model/adapter.py), TRL f2cd5771 and its
history (trainer/sft_config.py, base_config.py, model_config.py), Axolotl 067b021c (utils/schemas/, loaders/model.py), ms-swift
3602360a (arguments/, trainers/arguments.py); transformers training_args.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Attention = Literal["", "eager", "sdpa", "fa2", "fa3"]


@dataclass(frozen=True)
class Tool:
    """Defaults of a tool. `entry`: its catalogue entry. `checkpoints`: gradient checkpointing is on unless turned off. `rank` and
    `adapts_all`: of adapters. `half`: trained weights are kept in the 16 bits in which they are loaded; `base_width`: the dtype of
    weights that are loaded without one being named."""

    name: str
    entry: str
    seq: int
    checkpoints: bool
    rank: int
    adapts_all: bool
    half: bool
    base: Literal["fp32", "bf16"]
    double_quant: bool


TRAINER = Tool("transformers' Trainer", "huggingface", 2048, False, 8, False, False, "bf16", False)
LLAMA_FACTORY = Tool("LLaMA-Factory", "llama-factory", 2048, True, 8, True, False, "bf16", True)
AXOLOTL = Tool("Axolotl", "axolotl", 512, False, 8, False, True, "bf16", True)
SWIFT = Tool("ms-swift", "ms-swift", 2048, True, 8, True, True, "bf16", True)
UNSLOTH = Tool("Unsloth", "unsloth", 2048, True, 16, True, True, "bf16", True)
TRL = Tool("TRL", "trl", 1024, True, 16, False, False, "fp32", False)
OLD_TRL = Tool("TRL before 0.24", "huggingface", 1024, True, 16, False, False, "fp32", False)
OLDEST_TRL = Tool("TRL before 0.20", "huggingface", 1024, False, 16, False, False, "fp32", False)

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
