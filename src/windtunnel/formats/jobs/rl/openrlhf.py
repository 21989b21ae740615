"""OpenRLHF's command lines: vLLM's engines beside or under DeepSpeed (openrlhf/cli/train_ppo_ray.py).

Flags have sections since 0.10 (`--rollout.batch_size`); before, they had none (`--rollout_batch_size`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.formats.jobs.rl.trainer import RLTrainer, lengths_of, mean_tokens
from windtunnel.formats.jobs.scripts.said import Said, said_of_flags, without_none
from windtunnel.formats.jobs.scripts.trainer_command import (
    BATCH,
    DYNAMIC,
    MICRO,
    PACKED,
    RING,
    SAMPLES,
    actor_gpus,
    starts_openrlhf,
)


def read_words(words: Sequence[str]) -> RLTrainer | None:
    """What a command of OpenRLHF states; None for another command."""
    if not starts_openrlhf(words):
        return None
    said, assumed = said_of_flags(words), list[str]()
    estimator = said.text("algo.advantage.estimator", "advantage_estimator") or "gae"
    prompts, samples = said.count("rollout.batch_size", "rollout_batch_size") or 1024, said.count(*SAMPLES) or 1
    algorithm = "ppo" if estimator == "gae" else "grpo"
    table: dict[str, Any] = {"algorithm": algorithm, "trainer": "openrlhf", "prompts": prompts, "samples": samples}
    mini = max(1, (said.count(*BATCH) or 128) // samples)
    table["mini_batch"] = mini if prompts % mini == 0 else prompts
    table |= without_none(epochs=said.count("train.max_epochs", "max_epochs"))
    strength = said.number("algo.kl.init_coef", "init_kl_coef")
    table["reference"] = strength is None or strength > 0.0
    if said.text("reward.model_name_or_path", "reward_pretrain") and not said.text("reward.remote_url", "remote_rm_url"):
        table["reward_model"] = True
    whole = said.count("data.max_len", "max_len") or 2048
    prompt = said.count("prompt_max_len") or (1024 if "max_len" not in said and "data.max_len" not in said else whole // 2)
    response = said.count("rollout.max_new_tokens", "generate_max_len", "max_new_tokens") or max(1, whole - prompt)
    table |= lengths_of({"prompt": prompt, "response": response}, assumed)
    ring = said.count(*RING) or 1
    if said.is_on(*DYNAMIC):
        table["pack_tokens"] = ring * (said.count(*PACKED) or 16192)
        table |= without_none(logprob_tokens=said.count("rollout.max_tokens_per_gpu", "rollout_max_tokens_per_gpu"))
    else:
        table["pack_tokens"] = max(1, said.count(*MICRO) or 1) * mean_tokens(table)
    table["rollout"] = without_none(
        engine="vllm", tp=said.count("vllm.tensor_parallel_size", "vllm_tensor_parallel_size"),
        memory=said.number("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"),
        graphs=False if said.is_on("vllm.enforce_eager", "enforce_eager") else None,
    )  # fmt: skip
    return RLTrainer("OpenRLHF", table, _places(said, table, assumed), assumed)


def _places(said: Said, table: dict[str, Any], assumed: list[str]) -> int:
    """Sets the mode and what goes with it; the GPUs of all together."""
    actor = actor_gpus(said)
    asynchronous = said.is_on("train.async_enable", "async_train")
    if said.is_on("train.colocate_all", "colocate_all_models") and not asynchronous:
        sleeps = said.is_on("ds.enable_sleep", "deepspeed_enable_sleep")
        table["offload"] = "optimizer" if sleeps else "none"  # utils/deepspeed/deepspeed_utils.py: lp_params stay
        return actor
    engines, tp = said.count("vllm.num_engines", "vllm_num_engines") or 1, int(table["rollout"].get("tp", 1))
    table["rollout"]["gpus"] = engines * tp
    table["mode"] = "async" if asynchronous else "split"
    if asynchronous:
        table["staleness"] = float(said.count("train.async_queue_size", "async_queue_size") or 1)
        table["partial"] = said.is_on("train.partial_rollout_enable", "partial_rollout")
        table["sync_every"] = table["prompts"] // table["mini_batch"]
    colocated = said.is_on("train.colocate_all", "colocate_all_models")
    groups = [] if colocated else _groups(said, table, assumed)
    if groups:
        table["groups"] = groups
    return actor + engines * tp + sum(int(group["gpus"]) for group in groups)


def _groups(said: Said, table: Mapping[str, Any], assumed: list[str]) -> list[dict[str, Any]]:
    """Groups of GPUs of the critic, the reference and the reward model, which run beside each other; one that shares GPUs with the
    actor is in none (openrlhf/cli/train_ppo_ray.py: a group of its own for each role unless it is colocated)."""
    needed = {"critic": table["algorithm"] == "ppo", "ref": table["reference"], "reward": table.get("reward_model", False)}
    with_actor = said.is_on("train.colocate_actor_ref", "train.colocate_actor_reference", "colocate_actor_ref")
    with_critic = said.is_on("train.colocate_critic_reward", "colocate_critic_reward")
    groups = []
    for role, others in (("ref", ()), ("critic", ("reward",) if with_critic else ()), ("reward", ())):
        held = [name for name in (role, *others) if needed[name]]
        if not needed[role] or role == "ref" and with_actor or role == "reward" and with_critic and needed["critic"]:
            continue
        nodes, each = (said.count(f"{role}.{name}", f"{role}_{name}") for name in ("num_nodes", "num_gpus_per_node"))
        if each is None or nodes is None:
            assumed.append(f"{role}: {nodes or 1} x {each or 8} GPUs of its own, OpenRLHF's default where it is not colocated")
        names = ["reference" if name == "ref" else name for name in held]
        groups.append({"roles": names, "gpus": (nodes or 1) * (each or 8)})
    return groups
