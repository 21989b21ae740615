"""Overrides of verl's trainers as the table of the job that its update of the actor is.

`actor_rollout_ref.actor.ppo_mini_batch_size=16` and the like (verl/trainer/config/ppo_trainer.yaml, verl/workers/config/). A step
of reinforcement learning has phases before the update (rollout, log-probabilities, advantages); they are no part of this job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ACTOR = "actor_rollout_ref.actor."


def table_of_overrides(words: Sequence[str]) -> Mapping[str, Any]:
    """The Trainer's keys for overrides such as `trainer.nnodes=2`; a key that is not understood stays as it is."""
    said = {}
    for word in words:
        name, _, value = word.lstrip("+").partition("=")
        said[name] = value.strip("'\"")
    read: set[str] = set()

    def get(*names: str) -> str | None:
        found = None
        for name in names:
            if name in said:
                read.add(name)
                found = said[name] if found is None else found
        return found

    def on(*names: str) -> bool:
        return str(get(*names)).lower() == "true"

    table: dict[str, Any] = {"verl": True}
    gpus = _product(get("trainer.n_gpus_per_node"), get("trainer.nnodes") or "1")
    cp = _parse_count(get(f"{_ACTOR}ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size")) or 1
    table["model_name_or_path"] = get("actor_rollout_ref.model.path", "model.partial_pretrain", "model.path")
    table["num_processes"] = gpus
    prompt, response = _parse_count(get("data.max_prompt_length")), _parse_count(get("data.max_response_length"))
    table["max_length"] = _parse_count(get("data.max_length")) or ((prompt or 0) + (response or 0)) or None
    micro = _parse_count(get(f"{_ACTOR}ppo_micro_batch_size_per_gpu", "data.micro_batch_size_per_gpu")) or 1
    table["per_device_train_batch_size"] = micro
    # A mini batch counts prompts; each has `rollout.n` responses, and each of these is a sequence of the update.
    mini = _parse_count(get(f"{_ACTOR}ppo_mini_batch_size", "data.train_batch_size"))
    responses = _parse_count(get("actor_rollout_ref.rollout.n")) or 1
    if mini and gpus:
        replicas = max(1, gpus // cp)
        table["gradient_accumulation_steps"] = max(1, mini * responses // (replicas * micro))
    if cp > 1:
        table["context_parallel_size"] = cp
    table["gradient_checkpointing"] = on(
        "actor_rollout_ref.model.enable_gradient_checkpointing", "model.enable_gradient_checkpointing"
    )
    offloads = on(f"{_ACTOR}fsdp_config.param_offload", "model.fsdp_config.cpu_offload")
    table["fsdp_config"] = {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": offloads}
    on(f"{_ACTOR}fsdp_config.optimizer_offload")
    table["distributed_type"], table["bf16"] = "FSDP", True
    lora = _parse_count(get("actor_rollout_ref.model.lora_rank", "model.lora_rank"))
    if lora:
        table |= {
            "use_peft": True,
            "lora_r": lora,
            "lora_target_modules": get("actor_rollout_ref.model.target_modules") or "all-linear",
        }
    left = {name: value for name, value in said.items() if name not in read}
    return {key: value for key, value in table.items() if value is not None} | left


def _parse_count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _product(*texts: str | None) -> int | None:
    counts = [_parse_count(text) for text in texts]
    if any(count is None for count in counts):
        return None
    product = 1
    for count in counts:
        product *= count or 1
    return product
