"""TRL's GRPO: `trl grpo` with flags or a YAML file (trl/trainer/grpo_config.py). The update is read by `formats.jobs.trainer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.rl.trainer import RLTrainer, lengths_of, mean_tokens
from windtunnel.formats.jobs.scripts.said import said_of_table, without_none
from windtunnel.formats.jobs.several import PARTS

_OF_GRPO = {"num_generations", "max_completion_length"}
"""Keys of GRPO's configuration that no other trainer of TRL has together with a batch of prompts."""


def is_grpo(table: Mapping[str, Any]) -> bool:
    """Whether a table has the Trainer's keys of a GRPO run."""
    return bool(_OF_GRPO & _keys_of(table).keys())


def _keys_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a table, or of the parts of one."""
    listed = table.get(PARTS)
    parts = listed if isinstance(listed, list) else [table]
    return {key: value for part in parts if isinstance(part, Mapping) for key, value in part.items()}


def read_table(table: Mapping[str, Any], gpus: int | None = None) -> RLTrainer | None:
    """What the Trainer's keys of a GRPO run state; None for another run. SpecError where no GPUs are stated."""
    keys = _keys_of(table)
    if not _OF_GRPO & keys.keys():
        return None
    said, assumed = said_of_table(keys), list[str]()
    tp = said.count("vllm_tensor_parallel_size")
    apart = (tp or 1) if said.text("vllm_mode") == "server" else 0
    ranks = said.count("num_processes") if gpus is None else gpus - apart
    if ranks is None or ranks < 1:
        raise SpecError("num_processes", Nothing(), "how many GPUs: --set cluster.gpus=N")
    samples = said.count("num_generations") or 8
    micro, accumulated = said.count("per_device_train_batch_size") or 8, said.count("gradient_accumulation_steps") or 1
    update = micro * accumulated * ranks  # samples of an optimizer's step
    drawn = said.count("generation_batch_size") or micro * (said.count("steps_per_generation") or accumulated) * ranks
    prompts = max(1, drawn // samples)
    table_rl: dict[str, Any] = {"algorithm": "grpo", "trainer": "trl", "prompts": prompts, "samples": samples}
    table_rl |= without_none(epochs=said.count("num_iterations"))
    mini = max(1, update // samples)
    table_rl["mini_batch"] = mini if prompts % mini == 0 else prompts
    table_rl["reference"] = bool(said.number("beta"))
    table_rl["old_logprobs"] = drawn > update or (said.count("num_iterations") or 1) > 1
    longest = {"prompt": said.count("max_prompt_length") or 512, "response": said.count("max_completion_length") or 256}
    table_rl |= lengths_of(longest, assumed)
    table_rl["pack_tokens"] = micro * mean_tokens(table_rl)
    table_rl["rollout"] = without_none(
        engine="vllm", tp=tp, memory=said.number("vllm_gpu_memory_utilization") or 0.3,
    )  # fmt: skip
    if not said.is_on("use_vllm"):
        assumed.append("vLLM generates: what transformers' generate takes is not modelled (use_vllm is not set)")
    if apart:
        table_rl["rollout"]["gpus"] = apart
        table_rl["rollout"].pop("memory", None)
        table_rl["mode"] = "split"
        assumed.append(f"a server of vLLM on {apart} GPUs of its own (--set rl.rollout.gpus=N)")
    return RLTrainer("TRL", table_rl, ranks + apart, assumed)
