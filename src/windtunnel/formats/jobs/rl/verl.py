"""Overrides of verl's trainers as the table `rl` of a job: the phases of a step beside the update (`verl_table` reads that).

Names are those of verl/trainer/config/ppo_trainer.yaml, verl/workers/config/rollout.py and the configurations of its one-step-off
and fully asynchronous trainers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windtunnel.formats.jobs.rl.trainer import RLTrainer, lengths_of, mean_tokens
from windtunnel.formats.jobs.scripts.said import Said, without_none
from windtunnel.formats.jobs.scripts.trainer_command import VERL

_ACTOR, _ROLLOUT, _MODEL = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.model."


def read_words(words: Sequence[str]) -> RLTrainer | None:
    """What a command that starts one of verl's RL trainers states; None for another command."""
    at = next((at for at, word in enumerate(words) if VERL.fullmatch(word) and "sft" not in word), None)
    if at is None:
        return None
    texts = {"": words[at]}
    for word in words[at + 1 :]:
        name, equals, value = word.lstrip("+").partition("=")
        if equals:
            texts[name] = value.strip("'\"")
    said = Said(texts)
    table, gpus, assumed = _rl_table(said)
    return RLTrainer("verl", table, gpus, assumed, said.count(f"{_ACTOR}fsdp_config.fsdp_size"))


def _rl_table(said: Said) -> tuple[dict[str, Any], int | None, list[str]]:
    """(the table `rl`, GPUs of all together if the overrides state them, what was assumed) of a trainer's overrides."""
    assumed: list[str] = []
    table: dict[str, Any] = {
        "trainer": "verl",
        "algorithm": "ppo" if (said.text("algorithm.adv_estimator") or "gae") == "gae" else "grpo",
    }
    prompts = said.count("data.train_batch_size") or 1024
    drawn = said.count("data.gen_batch_size")
    table |= {"prompts": prompts, "samples": said.count(f"{_ROLLOUT}n") or 1}
    if drawn and drawn > prompts and said.is_on("algorithm.filter_groups.enable"):
        table["keep"] = prompts / drawn
    table |= without_none(
        mini_batch=said.count(f"{_ACTOR}ppo_mini_batch_size"), epochs=said.count(f"{_ACTOR}ppo_epochs"),
    )  # fmt: skip
    table["reference"] = any(said.is_on(name) for name in (f"{_ACTOR}use_kl_loss", "algorithm.use_kl_in_reward"))
    table["offload"] = _offload(said)
    _lengths(said, table, assumed)
    _packs(said, table, assumed)
    table["rollout"] = without_none(
        engine=said.text(f"{_ROLLOUT}name") if said.text(f"{_ROLLOUT}name") in ("vllm", "sglang", "trtllm") else None,
        tp=said.count(f"{_ROLLOUT}tensor_model_parallel_size"),
        memory=said.number(f"{_ROLLOUT}gpu_memory_utilization"),
        running=said.count(f"{_ROLLOUT}max_num_seqs"),
        step_tokens=said.count(f"{_ROLLOUT}max_num_batched_tokens"),
        graphs=None if f"{_ROLLOUT}enforce_eager" not in said else not said.is_on(f"{_ROLLOUT}enforce_eager"),
    )
    return table, _places(said, table), assumed


def _places(said: Said, table: dict[str, Any]) -> int | None:
    """Sets the mode and what goes with it; the GPUs of all together."""
    trainer = _gpus(said, "trainer.")
    rollout = _gpus(said, "rollout.") if "rollout.nnodes" in said else None
    if rollout is None and "rollout.n_gpus_per_node" in said:  # one_step_off: a part of each of the trainer's nodes
        nodes = said.count("trainer.nnodes") or 1
        rollout = nodes * (said.count("rollout.n_gpus_per_node") or 1)
    if said.is_on("reward_model.enable") and said.is_on("reward_model.enable_resource_pool"):
        pool = _gpus(said, "reward_model.") or 8
        table |= {"reward_model": True, "groups": [{"roles": ["reward"], "gpus": pool, "beside": False}]}
        trainer = None if trainer is None else trainer + pool
    if rollout is None or "main_ppo" in said.texts[""] and "one_step" not in said.texts[""]:
        return trainer
    table["rollout"]["gpus"] = rollout
    table["mode"] = "async" if "fully_async" in said.texts[""] else "one_step_off"
    if table["mode"] == "async":
        table |= without_none(
            staleness=said.number("async_training.staleness_threshold"),
            sync_every=said.count("async_training.trigger_parameter_sync_step"),
            require=said.count("async_training.require_batches"),
        )
        if "async_training.partial_rollout" in said:
            table["partial"] = said.is_on("async_training.partial_rollout")
    return None if trainer is None else trainer + rollout


def _lengths(said: Said, table: dict[str, Any], assumed: list[str]) -> None:
    longest = {name: said.count(f"data.max_{name}_length") or 512 for name in ("prompt", "response")}
    table |= lengths_of(longest, assumed)


def _packs(said: Said, table: dict[str, Any], assumed: list[str]) -> None:
    """Tokens of a micro batch, on the ranks that share a sequence."""
    shared = said.count(f"{_ACTOR}ulysses_sequence_parallel_size") or said.count(f"{_ACTOR}megatron.context_parallel_size") or 1
    micro = said.count(f"{_ACTOR}ppo_micro_batch_size_per_gpu")
    if said.is_on(f"{_ACTOR}use_dynamic_bsz") or micro is None:
        table["pack_tokens"] = shared * (said.count(f"{_ACTOR}ppo_max_token_len_per_gpu") or 16384)
    else:
        table["pack_tokens"] = micro * mean_tokens(table)
        kept = "with" if f"{_MODEL}use_remove_padding" in said and not said.is_on(f"{_MODEL}use_remove_padding") else "without"
        assumed.append(f"micro batches of {micro} samples {kept} padding (use_remove_padding)")
    _padding(said, table, assumed)
    scoring = said.count(f"{_ROLLOUT}log_prob_max_token_len_per_gpu")
    if scoring:
        table["logprob_tokens"] = shared * scoring


def _padding(said: Said, table: dict[str, Any], assumed: list[str]) -> None:
    """Padding that stays: FSDP's workers compute on whole prompts and responses of the longest length (workers/actor/dp_actor.py),
    Megatron's on the longest sample of a micro batch (models/mcore/util.py, preprocess_bshd)."""
    on_megatron = said.text(f"{_ACTOR}strategy") == "megatron" or any(name.startswith(f"{_ACTOR}megatron.") for name in said.texts)
    switches = [f"{_MODEL}use_remove_padding", *([f"{_ACTOR}megatron.use_remove_padding"] if on_megatron else [])]
    if not any(name in said for name in switches):  # trainer/config/model/hf_model.yaml, engine/megatron.yaml
        assumed.append("samples without padding, verl's default since 0.7 (use_remove_padding; before, --set rl.padded=longest)")
    if not any(name in said and not said.is_on(name) for name in switches):
        return
    longest = sum(said.count(f"data.max_{name}_length") or 512 for name in ("prompt", "response"))
    table["padded"] = "longest" if on_megatron else longest


def _offload(said: Said) -> str:
    """What waits in host memory during rollout."""
    heads = (f"{_ACTOR}fsdp_config.", f"{_ACTOR}megatron.")
    parameters = any(said.is_on(f"{head}param_offload") for head in heads)
    optimizer = any(said.is_on(f"{head}optimizer_offload") for head in heads)
    return "all" if parameters and optimizer else "optimizer" if optimizer else "none"


def _gpus(said: Said, head: str) -> int | None:
    each, nodes = said.count(f"{head}n_gpus_per_node"), said.count(f"{head}nnodes")
    return None if each is None and nodes is None else (each or 8) * (nodes or 1)
