"""Overrides of verl's trainers as the table of the job that its update of the actor is.

`actor_rollout_ref.actor.ppo_mini_batch_size=16` and the like (verl/trainer/config/ppo_trainer.yaml, verl/workers/config/). A step
of reinforcement learning has phases before the update (rollout, log-probabilities, advantages); they are no part of this job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ACTOR = "actor_rollout_ref.actor."
_NO_COST = (
    "algorithm.", "actor_rollout_ref.rollout.", "actor_rollout_ref.ref.", "critic.", "reward_model.", "trainer.", "data.",
)  # fmt: skip
"""Sections about other phases than the actor's update, and about data and reports."""
_DATA = (
    "data.train_files", "data.val_files", "data.prompt_key", "data.response_key", "data.prompt_dict_keys", "data.multiturn.enable",
    "data.response_dict_keys", "trainer.total_epochs", "trainer.project_name", "trainer.experiment_name", "trainer.logger",
    "trainer.default_local_dir", "trainer.save_freq", "trainer.test_freq", "optim.lr", "use_remove_padding",
)  # fmt: skip
_DEGREES = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size",
)  # fmt: skip


def table_of_overrides(words: Sequence[str], processes: int | None = None) -> Mapping[str, Any]:
    """The Trainer's keys for overrides such as `trainer.nnodes=2`, or Megatron-LM's flags where the actor is Megatron's; a key that
    is not understood stays as it is. `processes`: those that torchrun starts, which is how the fine-tuning trainer has them."""
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

    table: dict[str, Any] = {}
    gpus = _product(get("trainer.n_gpus_per_node"), get("trainer.nnodes") or "1") or processes
    tuned = not any(name.startswith("actor_rollout_ref.") for name in said)  # fsdp_sft_trainer
    table["verl" if tuned else "rl_update"] = "verl"
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
        table["sequence_parallel_size"] = cp
    on_megatron = any(name.startswith(f"{_ACTOR}megatron.") for name in said)
    if on_megatron or get(f"{_ACTOR}strategy") == "megatron":
        return _megatron_table(said, table, mini * responses if mini else None, gpus)
    read |= {name for name in said if name in _DATA or not tuned and name.startswith(_NO_COST)}
    table["gradient_checkpointing"] = on(
        "actor_rollout_ref.model.enable_gradient_checkpointing", "model.enable_gradient_checkpointing"
    )
    offloads = on("model.fsdp_config.cpu_offload", f"{_ACTOR}fsdp_config.offload_policy")
    on(f"{_ACTOR}fsdp_config.param_offload")  # between phases of a step alone (verl/workers/fsdp_workers.py)
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


def _megatron_table(said: Mapping[str, str], table: Mapping[str, Any], batch: int | None, gpus: int | None) -> Mapping[str, Any]:
    """Megatron-LM's flags of an actor of verl's Megatron workers (verl/workers/config/engine.py): bf16, a distributed optimizer,
    and sequence parallelism with tensor parallelism."""
    head = f"{_ACTOR}megatron."
    flags: dict[str, Any] = {"--rl-update": True, "--bf16": True, "--use-distributed-optimizer": True}
    flags["--hf-checkpoint"] = table["model_name_or_path"]
    flags |= {"--seq-length": table["max_length"], "--micro-batch-size": table["per_device_train_batch_size"]}
    flags |= {"--global-batch-size": batch, "--world-size": gpus}
    for name in _DEGREES:
        flags[f"--{name.replace('_', '-')}"] = said.get(head + name)
    if (_parse_count(said.get(f"{head}tensor_model_parallel_size")) or 1) > 1 and said.get(f"{head}sequence_parallel") != "False":
        flags["--sequence-parallel"] = True
    inner = f"{head}override_transformer_config."
    for name, value in said.items():
        if name.startswith(inner) and value.lower() not in ("null", "none", "false"):
            flags[f"--{name.removeprefix(inner).replace('_', '-')}"] = True if value.lower() == "true" else value.strip("[]")
    return {"MODEL_ARGS": {flag: value for flag, value in flags.items() if value is not None}}


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
