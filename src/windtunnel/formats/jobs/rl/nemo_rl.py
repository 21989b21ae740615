"""NeMo RL's configurations (examples/configs/grpo_math_1B.yaml): vLLM or SGLang beside or under DTensor or Megatron-Core."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.jobs.keys import interpolate
from windtunnel.formats.jobs.rl.trainer import RLTrainer, lengths_of, mean_tokens
from windtunnel.formats.jobs.scripts.said import Said, is_nemo_rl, said_of_table, without_none
from windtunnel.spec.loading.files import read_table as read_file
from windtunnel.spec.loading.resolve import merge

_DEEPEST = 8
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm"}
_FLAGS = {
    "tensor_model_parallel_size": "--tensor-model-parallel-size",
    "pipeline_model_parallel_size": "--pipeline-model-parallel-size",
    "context_parallel_size": "--context-parallel-size",
    "expert_model_parallel_size": "--expert-model-parallel-size",
    "expert_tensor_parallel_size": "--expert-tensor-parallel-size",
}


def open_defaults(table: Mapping[str, Any], folder: Path, depth: int = 0) -> Mapping[str, Any]:
    """The table on top of those that its `defaults` name and that lie beside it; a section with `_override_` replaces theirs.

    The same table where it names none. FileError for a file of NeMo RL's that is not there, and for a circle.
    """
    named = table.get("defaults")
    names = [str(name) for name in (named if isinstance(named, list) else [named])]
    if named is None or not all(name.endswith((".yaml", ".yml")) for name in names):
        return table
    merged: dict[str, Any] = {}
    for name in names:
        path = folder / PurePosixPath(name)
        if depth >= _DEEPEST or not path.is_file():
            raise FileError("defaults", name, f"a configuration beside this one, at most {_DEEPEST} one on another")
        merged = merge(merged, dict(open_defaults(read_file(path), path.parent, depth + 1)))
    own = {key: value for key, value in table.items() if key != "defaults"}
    replaced = {key for key, value in own.items() if isinstance(value, Mapping) and value.get("_override_") is True}
    return merge({key: value for key, value in merged.items() if key not in replaced}, own)


def read_table(table: Mapping[str, Any], gpus: int | None = None) -> RLTrainer | None:
    """What a configuration of NeMo RL states; None for another table."""
    if not is_nemo_rl(table):
        return None
    said, assumed = said_of_table(interpolate(table)), list[str]()
    head = "ppo" if isinstance(table.get("ppo"), Mapping) else "grpo"
    prompts, samples = said.count(f"{head}.num_prompts_per_step") or 32, said.count(f"{head}.num_generations_per_prompt") or 1
    one: dict[str, Any] = {"algorithm": head, "trainer": "nemo-rl", "prompts": prompts, "samples": samples}
    mini = (said.count("policy.train_global_batch_size") or prompts * samples) // samples
    one["mini_batch"] = mini if mini and prompts % mini == 0 else prompts
    one |= without_none(turns=said.count(f"{head}.max_rollout_turns"))
    one["reference"] = False
    if not said.is_on(f"{head}.skip_reference_policy_logprobs_calculation"):
        one["reference"] = bool(said.number("loss_fn.reference_policy_kl_penalty"))
    one["old_logprobs"] = not said.is_on("loss_fn.force_on_policy_ratio")  # algorithms/grpo.py, _resolve_logprob_skip_flags
    longest_sample = said.count("policy.max_total_sequence_length") or 2048
    response = said.count("policy.generation.max_new_tokens") or longest_sample
    one |= lengths_of({"prompt": said.count("data.max_input_seq_length") or longest_sample, "response": response}, assumed)
    _packs(said, one)
    backend = said.text("policy.generation.backend") or "vllm"
    if backend not in _ENGINES:
        assumed.append(f"vLLM generates in place of {backend}")
    config = "policy.generation.sglang_cfg" if backend == "sglang" else "policy.generation.vllm_cfg"
    precision = said.text(f"{config}.precision") or ""
    one["rollout"] = without_none(
        engine=_ENGINES.get(backend, "vllm"), tp=said.count(f"{config}.tensor_parallel_size", f"{config}.tp_size"),
        pp=said.count(f"{config}.pipeline_parallel_size"),
        memory=said.number(f"{config}.gpu_memory_utilization", f"{config}.mem_fraction_static"),
        graphs=False if said.is_on(f"{config}.enforce_eager") else None, weights="fp8" if precision == "fp8" else None,
        kv="fp8" if (said.text(f"{config}.kv_cache_dtype") or "").startswith("fp8") else None,
    )  # fmt: skip
    return RLTrainer("NeMo RL", one, _places(said, one, head), assumed)


def _packs(said: Said, one: dict[str, Any]) -> None:
    """Tokens of a micro batch, on the ranks that share a sequence."""
    for section in ("sequence_packing", "dynamic_batching"):
        if said.is_on(f"policy.{section}.enabled") and (tokens := said.count(f"policy.{section}.train_mb_tokens")):
            one["pack_tokens"] = tokens
            one |= without_none(logprob_tokens=said.count(f"policy.{section}.logprob_mb_tokens"))
            return
    one["pack_tokens"] = (said.count("policy.train_micro_batch_size") or 1) * mean_tokens(one)
    scored = said.count("policy.logprob_batch_size")
    if scored:
        one["logprob_tokens"] = scored * mean_tokens(one)


def gpus_of(said: Said) -> int:
    """GPUs of all together."""
    return (said.count("cluster.gpus_per_node") or 8) * (said.count("cluster.num_nodes") or 1)


def rollout_gpus(said: Said) -> int:
    """GPUs for generation alone; 0 where it shares those of the update."""
    head = "policy.generation.colocated"
    if (said.text(f"{head}.enabled") or "true").lower() != "false":
        return 0
    each, nodes = said.count(f"{head}.resources.gpus_per_node"), said.count(f"{head}.resources.num_nodes")
    if each is None and nodes is None:
        return max(1, gpus_of(said) // 2)
    return (each or said.count("cluster.gpus_per_node") or 8) * (nodes or 1)


def _places(said: Said, one: dict[str, Any], head: str) -> int:
    """Sets the mode and what goes with it; the GPUs of all together."""
    apart = rollout_gpus(said)
    if not apart:
        one["offload"] = "all"  # weights and states leave the GPU before each generation (nemo_rl/models/policy)
        return gpus_of(said)
    one["rollout"]["gpus"] = apart
    asynchronous = said.is_on(f"{head}.async_grpo.enabled")
    one["mode"] = "async" if asynchronous else "split"
    if asynchronous:
        one["staleness"] = said.number(f"{head}.async_grpo.max_trajectory_age_steps") or 1.0
        one["partial"] = said.is_on(f"{head}.async_grpo.in_flight_weight_updates")
        one["sync_every"] = one["prompts"] // one["mini_batch"]
    return gpus_of(said)


def table_of_update(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Trainer's keys of the policy's update, or Megatron-LM's flags where Megatron-Core trains it."""
    said = said_of_table(interpolate(table))
    head = "ppo" if isinstance(table.get("ppo"), Mapping) else "grpo"
    gpus, samples = gpus_of(said) - rollout_gpus(said), said.count(f"{head}.num_generations_per_prompt") or 1
    batch = said.count("policy.train_global_batch_size") or samples * (said.count(f"{head}.num_prompts_per_step") or 1)
    micro, seq = said.count("policy.train_micro_batch_size") or 1, said.count("policy.max_total_sequence_length") or 2048
    model = said.text("policy.model_name")
    if said.is_on("policy.megatron_cfg.enabled"):
        return _flags_of_update(said, {"--world-size": gpus, "--global-batch-size": batch, "--micro-batch-size": micro,
                                       "--seq-length": seq, "--hf-checkpoint": model})  # fmt: skip
    config = "policy.dtensor_cfg"
    tp, cp = said.count(f"{config}.tensor_parallel_size") or 1, said.count(f"{config}.context_parallel_size") or 1
    replicas = max(1, gpus // (tp * cp))
    offload = said.is_on(f"{config}.cpu_offload")
    found = without_none(
        rl_update="NeMo RL", model_name_or_path=model, num_processes=gpus, max_length=seq, per_device_train_batch_size=micro,
        gradient_accumulation_steps=max(1, batch // (replicas * micro)), distributed_type="FSDP", bf16=True,
        gradient_checkpointing=said.is_on(f"{config}.activation_checkpointing"), tensor_parallel_size=tp if tp > 1 else None,
        context_parallel_size=cp if cp > 1 else None,
        fsdp_config={"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": offload},
    )  # fmt: skip
    if said.is_on(f"{config}.lora_cfg.enabled"):
        found |= {"use_peft": True, "lora_r": said.count(f"{config}.lora_cfg.dim") or 8, "lora_target_modules": "all-linear"}
    return found


def _flags_of_update(said: Said, flags: dict[str, Any]) -> Mapping[str, Any]:
    config = "policy.megatron_cfg"
    flags |= {"--rl-update": True, "--bf16": True, "--use-distributed-optimizer": True}
    flags |= {flag: said.count(f"{config}.{name}") for name, flag in _FLAGS.items()}
    if said.is_on(f"{config}.sequence_parallel"):
        flags["--sequence-parallel"] = True
    if said.is_on(f"{config}.activation_checkpointing"):
        kind = said.text(f"{config}.recompute_granularity") or "full"
        flags |= {"--recompute-granularity": kind}
        if kind == "full":
            flags |= {"--recompute-method": "uniform", "--recompute-num-layers": 1}
    if said.is_on(f"{config}.moe_enable_deepep"):
        flags |= {"--moe-enable-deepep": True, "--moe-token-dispatcher-type": "flex"}
    if said.is_on(f"{config}.fp8_cfg.enabled"):
        flags |= {
            "--fp8-format": said.text(f"{config}.fp8_cfg.fp8") or "e4m3",
            "--fp8-recipe": said.text(f"{config}.fp8_cfg.fp8_recipe"),
        }
    return {"MODEL_ARGS": {flag: value for flag, value in flags.items() if value is not None}}
