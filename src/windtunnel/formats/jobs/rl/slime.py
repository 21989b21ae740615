"""slime's launch scripts: SGLang's engines beside or under Megatron-LM (slime/utils/arguments.py, train.py, train_async.py), and
those of vime, slime with vLLM's engines (vllm-project/vime examples/fully_async/).

Megatron-LM's flags of the update are read by `formats.jobs.megatron`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windtunnel.formats.jobs.hub_names import find_named
from windtunnel.formats.jobs.rl.trainer import LONGEST_PROMPT, RLTrainer, lengths_of
from windtunnel.formats.jobs.scripts.said import Said, said_of_flags, without_none

_VIME = re.compile(r"\bvime[./]")
_FULLY_ASYNC = "fully_async"
"""In the name of the function that slime's example draws samples with while the actor trains."""


def read_words(words: Sequence[str]) -> RLTrainer | None:
    """What a command of slime states; None for another command."""
    said = said_of_flags(words)
    if not ("rollout_batch_size" in said and ("actor_num_nodes" in said or "hf_checkpoint" in said)):
        return None
    assumed: list[str] = []
    prompts, samples = said.count("rollout_batch_size") or 1, said.count("n_samples_per_prompt") or 1
    cp = said.count("context_parallel_size") or 1
    estimator = said.text("advantage_estimator") or "grpo"
    table: dict[str, Any] = {"algorithm": "ppo" if estimator == "ppo" else "grpo", "prompts": prompts, "samples": samples}
    steps = said.count("num_steps_per_rollout") or max(
        1, prompts * samples // (said.count("global_batch_size") or prompts * samples)
    )
    if prompts % steps == 0:
        table["mini_batch"] = prompts // steps
    drawn = said.count("over_sampling_batch_size")
    if drawn and drawn > prompts and "dynamic_sampling_filter_path" in said:
        table["keep"] = prompts / drawn
    table["reference"] = said.is_on("use_kl_loss") or bool(said.number("kl_coef"))
    table["old_logprobs"] = not said.is_on("use_rollout_logprobs")
    longest = {
        "prompt": said.count("rollout_max_prompt_len") or LONGEST_PROMPT,
        "response": said.count("rollout_max_response_len") or 8192,
    }
    table |= lengths_of(longest, assumed)
    packed, scored = said.count("max_tokens_per_gpu"), said.count("log_probs_max_tokens_per_gpu")
    table |= without_none(pack_tokens=packed and packed * cp, logprob_tokens=scored and scored * cp)
    of_vime = any(name.startswith("vllm_") for name in said.texts) or any(_VIME.search(word) for word in words)
    table["rollout"] = _engine(said, "vllm" if of_vime else "sglang")
    table |= {} if of_vime else {"trainer": "slime"}
    return RLTrainer("vime" if of_vime else "slime", table, _places(said, words, table, assumed), assumed)


def _engine(said: Said, engine: str) -> dict[str, Any]:
    ranks = said.count("rollout_num_gpus_per_engine") or 1
    dp = said.count("sglang_dp_size", "sglang_data_parallel_size", "vllm_data_parallel_size") or 1
    experts = ranks if said.is_on("vllm_enable_expert_parallel") else None
    named = find_named((said.text("hf_checkpoint") or "").rstrip("/"))  # the engine loads it, and takes updates in its format
    held = None if named is None else named.model.checkpoint
    return without_none(
        engine=engine, weights=held and held.weights, tp=max(1, ranks // dp), dp=dp if dp > 1 else None,
        ep=said.count("sglang_ep_size", "sglang_expert_parallel_size") or experts,
        memory=said.number("sglang_mem_fraction_static", "vllm_gpu_memory_utilization"),
        running=said.count("sglang_max_running_requests", "vllm_max_num_seqs"),
        step_tokens=said.count("sglang_chunked_prefill_size", "vllm_max_num_batched_tokens"),
        graphs=False if said.is_on("sglang_disable_cuda_graph", "vllm_enforce_eager") else None,
    )  # fmt: skip


def _places(said: Said, words: Sequence[str], table: dict[str, Any], assumed: list[str]) -> int | None:
    """Sets the mode and what goes with it; the GPUs of all together."""
    each = said.count("actor_num_gpus_per_node")
    actor = (each or 8) * (said.count("actor_num_nodes") or 1)
    if each is None:
        assumed.append("nodes of 8 GPUs")
    if said.is_on("colocate"):
        table["offload"] = "none" if said.is_on("no_offload_train") else "all"
        return actor
    rollout = said.count("rollout_num_gpus")
    if rollout is None:
        rollout = actor
        assumed.append(f"{rollout} GPUs for rollout: --rollout-num-gpus is not stated")
    table["rollout"]["gpus"] = rollout
    background = _FULLY_ASYNC in (said.text("rollout_function_path") or "")
    ahead = any(word.rpartition("/")[2] == "train_async.py" for word in words)
    table["mode"] = "async" if background else "one_step_off" if ahead else "split"
    if background:
        updates = table["prompts"] // table.get("mini_batch", table["prompts"])
        table["sync_every"] = updates * (said.count("update_weights_interval") or 1)
        table["partial"] = said.is_on("partial_rollout")
    return actor + rollout
