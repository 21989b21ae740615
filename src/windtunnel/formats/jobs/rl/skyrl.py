"""SkyRL's overrides or configuration: vLLM beside FSDP or Megatron-Core (skyrl/train/config/config.py of 2026-08). Before, the
package was skyrl_train, and the keys of `generator.inference_engine` stood in `generator`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.formats.jobs.keys import interpolate
from windtunnel.formats.jobs.rl.trainer import (
    RLTrainer,
    lengths_of,
    mean_tokens,
    unread,
    update_of_full_recompute,
    update_on_fsdp,
    update_on_megatron,
)
from windtunnel.formats.jobs.scripts.said import ENTRY, Said, is_skyrl, said_of_table, without_none

_POLICY, _PLACED, _ENGINE = "trainer.policy.", "trainer.placement.", "generator.inference_engine."
_PROMPTS, _MINI_BATCH, _SAMPLES, _PROMPT, _RESPONSE = 1024, 256, 5, 512, 1024
_MEMORY, _RUNNING, _STEP_TOKENS, _STALE = 0.8, 1024, 8192, 4
"""Defaults of the configuration."""
_MEGATRON = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)  # fmt: skip


def read_table(table: Mapping[str, Any], gpus: int | None = None) -> RLTrainer | None:
    """What a configuration of SkyRL states of a step; None for another table."""
    if not is_skyrl(table):
        return None
    said, assumed = said_of_table(interpolate(table)), list[str]()
    critic = said.text("trainer.algorithm.advantage_estimator") == "gae"
    prompts, mini, samples = _batches(said)
    table_rl: dict[str, Any] = {
        "algorithm": "ppo" if critic else "grpo",
        "prompts": prompts,
        "samples": samples,
        "mini_batch": mini,
    }
    table_rl |= without_none(epochs=said.count("trainer.update_epochs_per_batch"))
    stated_loss = said.text("trainer.algorithm.use_kl_loss")
    table_rl["reference"] = stated_loss is None or stated_loss.lower() == "true" or said.is_on("trainer.algorithm.use_kl_in_reward")
    if stated_loss is None:
        assumed.append("a reference policy: trainer.algorithm.use_kl_loss is not stated, and SkyRL's default is true")
    prompt, response = _lengths(said)
    table_rl |= lengths_of({"prompt": prompt, "response": response}, assumed)
    packed = said.count("trainer.max_tokens_per_microbatch")
    micro = said.count("trainer.micro_train_batch_size_per_gpu") or 1
    table_rl["pack_tokens"] = packed or micro * mean_tokens(table_rl)
    if (said.text("trainer.remove_microbatch_padding", "trainer.use_sample_packing") or "true").lower() == "false":
        table_rl["padded"] = "longest"
    table_rl["rollout"] = _engine(said)
    total = _place(said, table_rl, assumed)
    _update(said, mini * samples, prompt + response)  # asks for the keys of the update
    said.count(f"{_POLICY}fsdp_config.fsdp_size")
    assumed += unread(said, "skyrl")
    return RLTrainer("SkyRL", table_rl, total, assumed, said.count(f"{_POLICY}fsdp_config.fsdp_size"))


def _batches(said: Said) -> tuple[int, int, int]:
    """(prompts of a step, prompts of an update, responses of each)."""
    prompts = said.count("trainer.train_batch_size") or _PROMPTS
    mini = min(prompts, said.count("trainer.policy_mini_batch_size") or _MINI_BATCH)
    return prompts, mini, said.count("generator.n_samples_per_prompt") or _SAMPLES


def _lengths(said: Said) -> tuple[int, int]:
    """(longest prompt, longest response)."""
    response = said.count("generator.sampling_params.max_generate_length") or _RESPONSE
    return said.count("trainer.max_prompt_length") or _PROMPT, response


def _names(key: str, old: str = "") -> tuple[str, str]:
    return f"{_ENGINE}{key}", f"generator.{old or key}"


def _degrees_of_engine(said: Said) -> tuple[int, int, int, int]:
    """(engines, tp, pp, dp)."""
    tp, pp, dp = (
        said.count(*_names(f"{name}_parallel_size", f"inference_engine_{name}_parallel_size")) or 1
        for name in ("tensor", "pipeline", "data")
    )
    return said.count(*_names("num_engines", "num_inference_engines")) or 1, tp, pp, dp


def _engine(said: Said) -> dict[str, Any]:
    _, tp, pp, _ = _degrees_of_engine(said)
    backend = said.text(*_names("backend")) or "vllm"
    eager = said.text(*_names("enforce_eager"))
    return without_none(
        engine=backend if backend in ("vllm", "sglang") else None, tp=tp, pp=pp if pp > 1 else None,
        memory=said.number(*_names("gpu_memory_utilization")) or _MEMORY, running=said.count(*_names("max_num_seqs")) or _RUNNING,
        step_tokens=said.count(*_names("max_num_batched_tokens")) or _STEP_TOKENS,
        graphs=None if eager is None else eager.lower() != "true",
    )  # fmt: skip


def _gpus_of(said: Said, role: str) -> int:
    return (said.count(f"{_PLACED}{role}_num_nodes") or 1) * (said.count(f"{_PLACED}{role}_num_gpus_per_node") or 1)


def _place(said: Said, table: dict[str, Any], assumed: list[str]) -> int:
    """Sets the mode and what waits on the host; the GPUs of all together."""
    policy = _gpus_of(said, "policy")
    if f"{_PLACED}policy_num_gpus_per_node" not in said:
        assumed.append("1 GPU a node for the policy, SkyRL's default (trainer.placement.policy_num_gpus_per_node)")
    engines, tp, pp, dp = _degrees_of_engine(said)
    generating, entry = engines * tp * pp * dp, said.text(ENTRY) or ""
    if (said.text(f"{_PLACED}colocate_all") or "true").lower() == "true":
        table["offload"] = "all"
        if generating != policy:
            assumed.append(f"engines on all {policy} GPUs of the policy: the file has {generating} for them, and colocates all")
        return policy
    table["rollout"]["gpus"] = generating
    if said.is_on("trainer.fully_async.enabled") or "fully_async" in entry or any("fully_async." in name for name in said.texts):
        stale = said.count("trainer.fully_async.max_staleness_steps") or _STALE
        table |= {"mode": "async", "staleness": float(stale), "partial": True}
        said.count("trainer.fully_async.num_parallel_generation_workers")
    else:
        table["mode"] = "one_step_off" if "async" in entry else "split"
    total = policy + generating
    own = table["reference"] and (said.text(f"{_PLACED}colocate_policy_ref") or "true").lower() == "false"
    groups = [("reference", _gpus_of(said, "ref"))] if own else []
    groups += [("critic", _gpus_of(said, "critic"))] if table["algorithm"] == "ppo" else []
    if groups:
        table["groups"] = [{"roles": [role], "gpus": count, "beside": False} for role, count in groups]
        total += sum(count for _, count in groups)
    return total


def table_of_update(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Trainer's keys of the policy's update, or Megatron-LM's flags where Megatron-Core trains it."""
    said = said_of_table(interpolate(table))
    _, mini, samples = _batches(said)
    return _update(said, mini * samples, sum(_lengths(said)))


def _update(said: Said, batch: int, seq: int) -> Mapping[str, Any]:
    model, gpus = said.text(f"{_POLICY}model.path") or "Qwen/Qwen2.5-1.5B-Instruct", _gpus_of(said, "policy")
    packed = said.count("trainer.max_tokens_per_microbatch")
    micro = max(1, packed // seq) if packed else said.count("trainer.micro_train_batch_size_per_gpu") or 1
    checkpoints = (said.text("trainer.gradient_checkpointing") or "true").lower() == "true"
    rank = said.count(f"{_POLICY}model.lora.rank")
    targets = said.text(f"{_POLICY}model.lora.target_modules") or "all-linear"
    if said.text("trainer.strategy") == "megatron":
        head = f"{_POLICY}megatron_config."
        degrees = {name: said.count(head + name) for name in _MEGATRON} | {"num_layers_per_virtual_pipeline_stage": None}
        kind = said.text(f"{head}transformer_config_kwargs.recompute_granularity")
        flags = update_of_full_recompute(checkpoints and (kind or "").lower() not in ("null", "none"), kind)
        flags |= {"sequence_parallel": (degrees["tensor_model_parallel_size"] or 1) > 1}
        if said.is_on(f"{head}optimizer_config_kwargs.optimizer_cpu_offload"):
            share = said.number(f"{head}optimizer_config_kwargs.optimizer_offload_fraction")
            flags |= {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 0.0 if share is None else share}
        if (kind or "") == "full":
            said.text(f"{head}transformer_config_kwargs.recompute_method", f"{head}transformer_config_kwargs.recompute_num_layers")
        return update_on_megatron(model, gpus, batch, micro, seq, degrees, **flags)
    adapters = {"use_peft": True, "lora_r": rank, "lora_target_modules": targets} if rank else {}
    offload = said.is_on(f"{_POLICY}fsdp_config.cpu_offload")
    axes = {"cp": said.count(f"{_POLICY}sequence_parallel_size") or 1}
    return update_on_fsdp(
        "SkyRL", model, gpus, batch, micro, seq, axes, gradient_checkpointing=checkpoints, offload=offload, **adapters
    )
