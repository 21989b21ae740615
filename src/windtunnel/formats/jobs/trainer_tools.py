"""Which tool on top of transformers' Trainer a configuration is for, and what that tool does where the configuration is silent.

Read at: LLaMA-Factory ff6d4d12 (hparams/model_args.py, data_args.py, finetuning_args.py, model/adapter.py), TRL f2cd5771 and its
history (trainer/sft_config.py, base_config.py, model_config.py), Axolotl 067b021c (utils/schemas/, loaders/model.py), ms-swift
3602360a (arguments/, trainers/arguments.py); transformers training_args.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Attention = Literal["", "eager", "sdpa", "fa2", "fa3"]


@dataclass(frozen=True)
class Tool:
    """Defaults of a tool. `entry`: its catalogue entry. `seq`: tokens of a sequence. `checkpoints`: gradient checkpointing is on
    unless turned off. Of adapters: `rank`, `adapts_all` (every linear module), `dropout`. `half`: trained weights are kept in the
    16 bits in which they are loaded; `loads`: the dtype of weights where none is named. `double_quant`: of 4-bit weights."""

    name: str
    entry: str = "huggingface"
    seq: int = 2048
    checkpoints: bool = False
    rank: int = 8
    adapts_all: bool = False
    dropout: bool = False
    half: bool = False
    loads: Literal["fp32", "bf16"] = "bf16"
    double_quant: bool = False


TRAINER = Tool("transformers' Trainer")
LLAMA_FACTORY = Tool("LLaMA-Factory", "llama-factory", checkpoints=True, adapts_all=True, double_quant=True)
AXOLOTL = Tool("Axolotl", "axolotl", 512, half=True, double_quant=True)
SWIFT = Tool("ms-swift", "ms-swift", checkpoints=True, adapts_all=True, dropout=True, half=True, double_quant=True)
UNSLOTH = Tool("Unsloth", "unsloth", checkpoints=True, rank=16, adapts_all=True, half=True, double_quant=True)
TRL = Tool("TRL", "trl", 1024, checkpoints=True, rank=16, dropout=True, loads="fp32")
VERL = Tool("verl", seq=2048, loads="fp32")
"""verl's FSDP workers (verl/workers/fsdp_workers.py): weights of the actor in fp32, its logits whole."""
OPENRLHF = Tool("OpenRLHF", seq=2048)
NEMO_RL = Tool("NeMo RL", seq=2048, loads="fp32")
"""NeMo RL's DTensor workers keep weights in fp32 (nemo_rl/models/policy/dtensor_policy_worker.py)."""
OLD_TRL = replace(TRL, name="TRL before 0.24", entry="huggingface")
OLDEST_TRL = replace(OLD_TRL, name="TRL before 0.20", checkpoints=False)

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
        return next((tool for tool in (OPENRLHF, NEMO_RL) if tool.name == table.get("rl_update")), VERL)
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
