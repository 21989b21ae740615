"""Overrides of verl's trainers as the table `rl` of a job: the phases of a step beside the update (`verl_table` reads that).

Names are those of verl/trainer/config/ppo_trainer.yaml, verl/workers/config/rollout.py and the configurations of its one-step-off
and fully asynchronous trainers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windtunnel.formats.jobs.scripts.command import commands_of
from windtunnel.formats.jobs.scripts.trainer_command import VERL
from windtunnel.formats.text.source import read_source

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
_SHARE = 4
"""The mean response, of which a script states only the longest, is that over this; assumed."""


def overrides_of_script(path: Path) -> dict[str, str] | None:
    """Names and values of the overrides of the last command of a script that starts one of verl's RL trainers, with the trainer's
    module under ""; None for another script. Raises as `read_source`."""
    text, where = read_source(path)
    commands, _ = commands_of(text, where, (), {}, path)
    for command in reversed(commands):
        at = next((at for at, word in enumerate(command) if VERL.fullmatch(word) and "sft" not in word), None)
        if at is None:
            continue
        said = {"": command[at]}
        for word in command[at + 1 :]:
            name, equals, value = word.lstrip("+").partition("=")
            if equals:
                said[name] = value.strip("'\"")
        return said
    return None


def rl_table(said: Mapping[str, str]) -> tuple[dict[str, Any], int | None, list[str]]:
    """(the table `rl`, GPUs of all together if the overrides state them, what was assumed) of a trainer's overrides."""
    assumed: list[str] = []
    table: dict[str, Any] = {"algorithm": "ppo" if said.get("algorithm.adv_estimator", "gae") == "gae" else "grpo"}
    prompts = _count(said, "data.train_batch_size") or 1024
    drawn = _count(said, "data.gen_batch_size")
    table |= {"prompts": prompts, "samples": _count(said, f"{_ROLLOUT}n") or 1}
    if drawn and drawn > prompts and said.get("algorithm.filter_groups.enable", "").lower() == "true":
        table["keep"] = prompts / drawn
    table |= _drop_none(
        mini_batch=_count(said, f"{_ACTOR}ppo_mini_batch_size"), epochs=_count(said, f"{_ACTOR}ppo_epochs"),
    )  # fmt: skip
    table["reference"] = any(_on(said, name) for name in (f"{_ACTOR}use_kl_loss", "algorithm.use_kl_in_reward"))
    table["offload"] = _offload(said)
    _lengths(said, table, assumed)
    _packs(said, table, assumed)
    table["rollout"] = _drop_none(
        engine=said.get(f"{_ROLLOUT}name") if said.get(f"{_ROLLOUT}name") in ("vllm", "sglang", "trtllm") else None,
        tp=_count(said, f"{_ROLLOUT}tensor_model_parallel_size"),
        memory=_number(said, f"{_ROLLOUT}gpu_memory_utilization"),
        running=_count(said, f"{_ROLLOUT}max_num_seqs"),
        step_tokens=_count(said, f"{_ROLLOUT}max_num_batched_tokens"),
        graphs=None if f"{_ROLLOUT}enforce_eager" not in said else not _on(said, f"{_ROLLOUT}enforce_eager"),
    )
    return table, _places(said, table), assumed


def _places(said: Mapping[str, str], table: dict[str, Any]) -> int | None:
    """Sets the mode and what goes with it; the GPUs of all together."""
    trainer = _gpus(said, "trainer.")
    rollout = _gpus(said, "rollout.") if "rollout.nnodes" in said else None
    if rollout is None and "rollout.n_gpus_per_node" in said:  # one_step_off: a part of each of the trainer's nodes
        nodes = _count(said, "trainer.nnodes") or 1
        rollout = nodes * (_count(said, "rollout.n_gpus_per_node") or 1)
    if rollout is None or "main_ppo" in said[""] and "one_step" not in said[""]:
        return trainer
    table["rollout"]["gpus"] = rollout
    table["mode"] = "async" if "fully_async" in said[""] else "one_step_off"
    if table["mode"] == "async":
        table |= _drop_none(
            staleness=_number(said, "async_training.staleness_threshold"),
            sync_every=_count(said, "async_training.trigger_parameter_sync_step"),
            require=_count(said, "async_training.require_batches"),
        )
        if "async_training.partial_rollout" in said:
            table["partial"] = _on(said, "async_training.partial_rollout")
    return None if trainer is None else trainer + rollout


def _lengths(said: Mapping[str, str], table: dict[str, Any], assumed: list[str]) -> None:
    for name, head, least in (("prompt", "data.max_prompt_length", 512), ("response", "data.max_response_length", 512)):
        most = _count(said, head) or least
        table[name] = f"{max(1, most // _SHARE)}~1<{most}"
    assumed.append(
        f"lengths log-normal: responses {table['response']}, prompts {table['prompt']}; the script states the longest alone "
        "(--set rl.response=MEAN~CV<CAP, or --log FILE)"
    )


def _packs(said: Mapping[str, str], table: dict[str, Any], assumed: list[str]) -> None:
    """Tokens of a micro batch, on the ranks that share a sequence."""
    shared = _count(said, f"{_ACTOR}ulysses_sequence_parallel_size") or _count(said, f"{_ACTOR}megatron.context_parallel_size") or 1
    micro = _count(said, f"{_ACTOR}ppo_micro_batch_size_per_gpu")
    if _on(said, f"{_ACTOR}use_dynamic_bsz") or micro is None:
        table["pack_tokens"] = shared * (_count(said, f"{_ACTOR}ppo_max_token_len_per_gpu") or 16384)
    else:
        mean = sum(int(str(table[name]).partition("~")[0]) for name in ("prompt", "response"))
        table["pack_tokens"] = micro * mean
        assumed.append(f"micro batches of {micro} samples without padding (use_remove_padding)")
    scoring = _count(said, f"{_ROLLOUT}log_prob_max_token_len_per_gpu")
    if scoring:
        table["logprob_tokens"] = shared * scoring


def _offload(said: Mapping[str, str]) -> str:
    """What waits in host memory during rollout."""
    heads = (f"{_ACTOR}fsdp_config.", f"{_ACTOR}megatron.")
    parameters = any(_on(said, f"{head}param_offload") for head in heads)
    optimizer = any(_on(said, f"{head}optimizer_offload") for head in heads)
    return "all" if parameters and optimizer else "optimizer" if optimizer else "none"


def _gpus(said: Mapping[str, str], head: str) -> int | None:
    each, nodes = _count(said, f"{head}n_gpus_per_node"), _count(said, f"{head}nnodes")
    return None if each is None and nodes is None else (each or 8) * (nodes or 1)


def _drop_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _count(said: Mapping[str, str], name: str) -> int | None:
    text = said.get(name, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _number(said: Mapping[str, str], name: str) -> float | None:
    try:
        return float(said[name])
    except (KeyError, ValueError):
        return None


def _on(said: Mapping[str, str], name: str) -> bool:
    return said.get(name, "").lower() == "true"
