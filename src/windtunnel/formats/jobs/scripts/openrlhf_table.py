"""OpenRLHF's flags as the table of the job that its update of the actor is (openrlhf/cli/train_ppo_ray.py).

Flags have sections since 0.10 (`--rollout.batch_size`); before, they had none (`--rollout_batch_size`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.formats.jobs.scripts.said import Said, said_of_flags, without_none

MODULES = ("openrlhf.cli.train_ppo_ray", "openrlhf.cli.train_ppo")

BATCH, SAMPLES = ("train.batch_size", "train_batch_size"), ("rollout.n_samples_per_prompt", "n_samples_per_prompt")
MICRO = ("train.micro_batch_size", "micro_train_batch_size")
RING, TP = ("ds.ring_attn_size", "ring_attn_size"), ("ds.tensor_parallel_size", "ds_tensor_parallel_size")
PACKED = ("train.max_tokens_per_gpu", "train_max_tokens_per_gpu")
DYNAMIC = ("train.dynamic_batch_enable", "use_dynamic_batch")


def starts_openrlhf(words: Sequence[str]) -> bool:
    """Whether a command starts OpenRLHF's RL trainer."""
    return any(word in MODULES for word in words)


def actor_gpus(said: Said) -> int:
    """GPUs of the actor."""
    nodes = said.count("actor.num_nodes", "actor_num_nodes") or 1
    return nodes * (said.count("actor.num_gpus_per_node", "actor_num_gpus_per_node") or 8)


def table_of_update(words: Sequence[str]) -> Mapping[str, Any]:
    """The Trainer's keys for the update of the actor."""
    said = said_of_flags(words)
    gpus, micro, stage = actor_gpus(said), said.count(*MICRO) or 1, said.text("ds.zero_stage", "zero_stage") or "2"
    tp, ring = said.count(*TP) or 1, said.count(*RING) or 1
    replicas = max(1, gpus // (tp * ring))
    table = without_none(
        rl_update="OpenRLHF", model_name_or_path=said.text("actor.model_name_or_path", "pretrain"), num_processes=gpus,
        max_length=said.count("data.max_len", "max_len") or 2048, per_device_train_batch_size=micro,
        gradient_accumulation_steps=max(1, (said.count(*BATCH) or 128) // (replicas * micro)),
        gradient_checkpointing=said.is_on("actor.gradient_checkpointing_enable", "gradient_checkpointing"),
        zero_stage=int(stage) if stage.isdecimal() else 2, bf16=True, tensor_parallel_size=tp if tp > 1 else None,
        context_parallel_size=ring if ring > 1 else None,
    )  # fmt: skip
    if said.is_on("ds.adam_offload", "adam_offload"):
        table["deepspeed_config"] = {"offload_optimizer_device": "cpu", "zero_stage": table.pop("zero_stage")}
    if rank := said.count("ds.lora.rank", "lora_rank"):
        table |= {"use_peft": True, "lora_r": rank, "lora_target_modules": "all-linear"}
    return table
