"""ROLL's configurations: vLLM or SGLang beside or under Megatron-Core or FSDP (roll/configs/, roll/pipeline/rlvr/ of 8eb27cc2).

Each role has `strategy_args` and the numbers of its GPUs (`device_mapping: list(range(0,8))`): roles that share numbers take turns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import SpecError
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
from windtunnel.formats.jobs.scripts.said import Said, is_roll, said_of_table, without_none

_RANGE = re.compile(r"range\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?(?:,\s*(\d+)\s*)?\)|\[([\d\s,]*)\]")
_MOST_GPUS = 1 << 17
_KL, _PROMPTS, _PROMPT, _MICRO = 0.2, 128, 1024, 8
"""Defaults of init_kl_coef, rollout_batch_size, prompt_length and per_device_train_batch_size."""
_MOST_AHEAD = 16.0
_TRAIN, _INFER = "actor_train", "actor_infer"
_STRATEGY = ".strategy_args.strategy_config."
_DEGREES = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)  # fmt: skip


def devices_of(value: object, path: str = "device_mapping") -> frozenset[int]:
    """The numbers of a role's GPUs: a list, or Python that adds ranges and lists up. SpecError for another text."""
    if isinstance(value, list) and all(isinstance(number, int) for number in value):
        return frozenset(value)
    if value is None:
        return frozenset()
    text = str(value)
    numbers: set[int] = set()
    for begin, end, step, listed in _RANGE.findall(text):
        first, last = (int(begin), int(end)) if end else (0, int(begin or 0))
        if last > _MOST_GPUS:
            raise SpecError(path, text, f"at most {_MOST_GPUS:,} GPUs")
        numbers |= {int(number) for number in listed.split(",") if number.strip()} if listed else set()
        numbers |= set(range(first, last, int(step or 1) or 1)) if begin else set()
    if not numbers or re.sub(r"list|[\s+()]", "", _RANGE.sub("", text)):
        raise SpecError(path, text, "numbers of GPUs, such as list(range(0,8))")
    return frozenset(numbers)


def read_table(table: Mapping[str, Any], gpus: int | None = None) -> RLTrainer | None:
    """What a configuration of ROLL states of a step; None for another table."""
    if not is_roll(table):
        return None
    filled, assumed = interpolate(table), list[str]()
    said = said_of_table(filled)
    prompts, samples, update = _batches(said, filled)
    estimator = said.text("adv_estimator") or "gae"
    critic = estimator == "gae" and bool(_devices(filled, "critic"))
    if estimator == "gae" and not critic:
        assumed.append("no critic: none has GPUs (adv_estimator gae, ROLL's default, needs one)")
    table_rl: dict[str, Any] = {"algorithm": "ppo" if critic else "grpo", "prompts": prompts, "samples": samples}
    updates = max(1, prompts * samples // update)
    table_rl["mini_batch"] = prompts // updates if prompts % updates == 0 else prompts
    table_rl |= without_none(epochs=said.count("ppo_epochs"))
    strength = said.number("init_kl_coef")
    by_reward = (_KL if strength is None else strength) > 0.0
    wanted = by_reward or said.is_on("use_kl_loss") or said.is_on("enable_reference")
    table_rl["reference"] = wanted and bool(_devices(filled, "reference"))
    if strength is None and table_rl["reference"]:
        assumed.append(f"a reference policy: init_kl_coef is not stated, and ROLL's default is {_KL:g}")
    again = by_reward or updates > 1 or said.is_on("enable_old_logprobs_recompute")
    table_rl["old_logprobs"] = again and not said.is_on("force_disable_old_logprobs_recompute")
    prompt, whole = _lengths(said)
    table_rl |= lengths_of({"prompt": prompt, "response": whole - prompt}, assumed)
    _packs(said, table_rl, whole, assumed)
    table_rl["rollout"] = _engine(said)
    total = _place(said, filled, table_rl, updates, assumed)
    if "train_env_manager" in table:
        assumed.append("environments answer at once, in one turn (--set rl.turns=N --set rl.tool_seconds=S)")
    _update(said, filled)  # asks for the keys of the update
    group = said.count(f"{_TRAIN}{_STRATEGY}fsdp_size")
    assumed += unread(said, "roll")
    return RLTrainer("ROLL", table_rl, total, assumed, group)


def _batches(said: Said, table: Mapping[str, Any]) -> tuple[int, int, int]:
    """(prompts of a step, responses of each, samples of an update)."""
    drawn = said.count("rollout_batch_size") or _PROMPTS
    group = said.count("train_env_manager.group_size")  # of the agentic pipeline, whose batch counts trajectories
    samples = group or said.count("num_return_sequences_in_group") or 1
    prompts = max(1, drawn // samples) if group else drawn
    micro, accumulated = _micro(said), said.count(f"{_TRAIN}.training_args.gradient_accumulation_steps") or 1
    return prompts, samples, micro * accumulated * _replicas(said, table)


def _micro(said: Said) -> int:
    return said.count(f"{_TRAIN}.training_args.per_device_train_batch_size") or _MICRO


def _replicas(said: Said, table: Mapping[str, Any]) -> int:
    """Replicas of the actor that is trained."""
    ranks = math.prod(said.count(f"{_TRAIN}{_STRATEGY}{name}") or 1 for name in _DEGREES[:3])
    if not (said.text(f"{_TRAIN}.strategy_args.strategy_name") or "").startswith("megatron"):
        ranks = said.count(f"{_TRAIN}.model_args.ulysses_size") or 1
    return max(1, len(_devices(table, _TRAIN)) // ranks)


def _devices(table: Mapping[str, Any], role: str) -> frozenset[int]:
    section = table.get(role)
    return devices_of(section.get("device_mapping"), f"{role}.device_mapping") if isinstance(section, Mapping) else frozenset()


def _lengths(said: Said) -> tuple[int, int]:
    """(longest prompt, longest sample)."""
    stated, whole = said.count("prompt_length"), said.count("sequence_length")
    prompt = stated or min(_PROMPT, (whole or 2 * _PROMPT) // 2)
    whole = whole or prompt + (said.count("response_length") or 4 * prompt)
    return max(1, min(prompt, whole - 1)), whole


def _packs(said: Said, table: dict[str, Any], whole: int, assumed: list[str]) -> None:
    """Tokens of a micro batch: packed, sorted by length, or else each sample padded to the longest."""
    if said.is_on(f"{_TRAIN}.use_sequence_packing"):
        head = f"{_TRAIN}.sequence_packing_args.max_packed_sequence_length_"
        table["pack_tokens"] = said.count(f"{head}train") or whole
        table |= without_none(logprob_tokens=said.count(f"{head}forward"))
    elif said.is_on(f"{_TRAIN}.use_dynamic_batching_in_train"):
        table["pack_tokens"] = said.count(f"{_TRAIN}.max_tokens_per_microbatch_in_train") or 2 * whole * _micro(said)
        table |= without_none(logprob_tokens=said.count(f"{_TRAIN}.max_tokens_per_microbatch_in_infer"))
    else:
        mean = mean_tokens(table)
        table |= {"pack_tokens": _micro(said) * mean, "padded": whole}
        scored = said.count(f"{_TRAIN}.infer_batch_size")
        table |= without_none(logprob_tokens=scored and scored * mean)
        assumed.append(f"each sample is padded to {whole:,} tokens: neither use_sequence_packing nor dynamic batching is on")


def _engine(said: Said) -> dict[str, Any]:
    head = f"{_INFER}{_STRATEGY}"
    engine = said.text(f"{_INFER}.strategy_args.strategy_name") or "vllm"
    workers = said.count(f"{_INFER}.num_gpus_per_worker")
    workers = workers if engine == "sglang" else None
    return without_none(
        engine=engine if engine in ("vllm", "sglang") else "vllm",
        tp=said.count(f"{head}tensor_parallel_size", f"{head}tp_size") or workers or 1,
        pp=said.count(f"{head}pipeline_parallel_size"),
        memory=said.number(f"{head}gpu_memory_utilization", f"{head}mem_fraction_static"),
        running=said.count(f"{head}max_num_seqs", f"{head}max_running_requests"),
        step_tokens=said.count(f"{head}max_num_batched_tokens", f"{head}chunked_prefill_size"),
        graphs=False if said.is_on(f"{head}enforce_eager", f"{head}disable_cuda_graph") else None,
        weights="fp8" if said.text(f"{head}quantization") == "fp8" else None,
    )  # fmt: skip


def _place(said: Said, table: Mapping[str, Any], out: dict[str, Any], updates: int, assumed: list[str]) -> int:
    """Sets the mode and the groups of other roles by the GPUs that roles share; the GPUs of all together."""
    train, infer = _devices(table, _TRAIN), _devices(table, _INFER)
    ahead = said.number("async_generation_ratio") or 0.0
    used = train | infer
    if train & infer:
        out["offload"] = "all"
        assumed.append("training states wait in host memory during rollout, as roles that share GPUs do in ROLL")
        if infer != train:
            assumed.append(f"rollout on {len(train)} GPUs, those of the update, for the {len(infer)} that {_INFER} names")
        if ahead:
            assumed.append(f"rollout in turn with the update, whose GPUs it shares: async_generation_ratio {ahead:g} gains nothing")
        used = train
    else:
        out["rollout"]["gpus"] = len(infer)
        out["mode"] = "async" if ahead else "split"
        if ahead:
            out |= {"staleness": min(ahead, _MOST_AHEAD), "sync_every": updates, "partial": True}
    groups: dict[frozenset[int], list[str]] = {}
    for section, role, needed in (("critic", "critic", out["algorithm"] == "ppo"), ("reference", "reference", out["reference"])):
        devices = _devices(table, section)
        if needed and devices and not devices & used:
            groups.setdefault(devices, []).append(role)
    if groups:
        out["groups"] = [{"roles": held, "gpus": len(devices)} for devices, held in groups.items()]
    for name, reward in (table.get("rewards") or {}).items() if isinstance(table.get("rewards"), Mapping) else ():
        judged = devices_of(reward.get("device_mapping")) if isinstance(reward, Mapping) else frozenset()
        if judged:
            assumed.append(f"the judge {name} on {len(judged)} GPUs is not priced (--set rl.reward_seconds=S)")
    return len(used) + sum(len(devices) for devices in groups)


def table_of_update(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Trainer's keys of the actor's update, or Megatron-LM's flags where Megatron-Core trains it."""
    filled = interpolate(table)
    return _update(said_of_table(filled), filled)


def _update(said: Said, table: Mapping[str, Any]) -> Mapping[str, Any]:
    head, gpus = f"{_TRAIN}{_STRATEGY}", len(_devices(table, _TRAIN))
    batch, (_, whole) = _batches(said, table)[2], _lengths(said)
    model = said.text(f"{_TRAIN}.model_args.model_name_or_path", "pretrain")
    if (said.text(f"{_TRAIN}.strategy_args.strategy_name") or "").startswith("megatron"):
        degrees = {name: said.count(head + name) for name in _DEGREES}
        kind = said.text(f"{head}recompute_granularity")
        flags = update_of_full_recompute(kind is not None, kind)
        if said.is_on(f"{head}moe_layer_recompute"):
            flags |= {"recompute_granularity": "selective", "recompute_modules": "moe"}
        flags["sequence_parallel"] = said.is_on(f"{head}sequence_parallel") and (degrees["tensor_model_parallel_size"] or 1) > 1
        chunks = said.count(f"{head}virtual_pipeline_model_parallel_size")
        flags |= {"num_virtual_stages_per_pipeline_rank": chunks if (degrees["pipeline_model_parallel_size"] or 1) > 1 else None}
        return update_on_megatron(model, gpus, batch, _micro(said), whole, degrees, **flags)
    degrees_of_fsdp = {"cp": said.count(f"{_TRAIN}.model_args.ulysses_size") or 1}
    rank = said.count(f"{_TRAIN}.model_args.lora_rank") if "lora_target" in str(table[_TRAIN]) else None
    adapters = {"use_peft": True, "lora_r": rank or 8, "lora_target_modules": "all-linear"} if rank else {}
    return update_on_fsdp(
        "ROLL", model, gpus, batch, _micro(said), whole, degrees_of_fsdp, offload=said.is_on(f"{head}offload_policy"),
        gradient_checkpointing=not said.is_on(f"{_TRAIN}.model_args.disable_gradient_checkpointing"), **adapters,
    )  # fmt: skip
