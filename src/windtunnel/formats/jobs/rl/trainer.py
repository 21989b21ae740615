"""What a launch script or a configuration of an RL trainer states, and the words that it states it in.

The update of a policy as readers of training jobs take it: transformers' keys for FSDP, Megatron-LM's flags for its core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.formats.jobs.keys import harmless_of_trainer
from windtunnel.formats.jobs.scripts.said import Said, without_none

_SHOWN = 12
"""Names that are listed of those that were not read."""

_SHARE = 4
"""The mean length, of which trainers state only the longest, is that over this; assumed."""

UPDATE_ALONE = "the update of the actor alone: rollout, log-probabilities and advantages of a step are no part of this job"
"""What is said of a job that is one phase of a step."""

LONGEST_SAMPLES = "samples of "
LONGEST_PROMPT = 1024
"""Tokens of a prompt where slime's scripts set no limit."""
"""How the note begins that a job of an update takes each sample to be as long as may be."""

LENGTHS_ASSUMED = "lengths log-normal"
"""How the note begins that a log with lengths makes void."""


@dataclass(frozen=True)
class RLTrainer:
    """A step as a trainer's files state it. `table`: the table `rl` of a job; `gpus`: of all together, None where they are not
    stated; `assumed`: what the files leave open; `shard_group`: ranks that share weights where these are fewer than all."""

    tool: str
    table: dict[str, Any]
    gpus: int | None
    assumed: list[str]
    shard_group: int | None = None


def lengths_of(longest: Mapping[str, int], assumed: list[str]) -> dict[str, str]:
    """`prompt` and `response` as distributions, from the longest of each."""
    texts = {name: f"{max(1, most // _SHARE)}~1<{most}" for name, most in longest.items()}
    assumed.append(
        f"{LENGTHS_ASSUMED}: responses {texts['response']}, prompts {texts['prompt']}; the trainer states the longest alone "
        "(--set rl.response=MEAN~CV<CAP, or --log FILE)"
    )
    return texts


def mean_tokens(texts: Mapping[str, Any]) -> int:
    """Tokens of a sample in the mean, of the two texts of `lengths_of`."""
    return sum(int(str(texts[name]).partition("~")[0]) for name in ("prompt", "response"))


def unread(said: Said, trainer: str) -> list[str]:
    """What is said of names that a reader of a trainer asked nothing of, and that cost something; nothing where there are none."""
    left = said.left_over(harmless_of_trainer(trainer))
    shown = ", ".join(left[:_SHOWN]) + (f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else "")
    return [f"not read: {shown}"] if left else []


def update_on_fsdp(
    tool: str, model: str | None, gpus: int, batch: int, micro: int, seq: int, degrees: Mapping[str, int], **fields: Any
) -> Mapping[str, Any]:
    """`batch` samples of `seq` tokens an update; `degrees` has "tp" and "cp". `fields`: further keys of the Trainer."""
    tp, cp = degrees.get("tp", 1), degrees.get("cp", 1)
    replicas = max(1, gpus // (tp * cp))
    share = max(1, batch // replicas)
    micro = next(count for count in range(min(micro, share), 0, -1) if share % count == 0)
    keys = {
        "rl_update": tool, "model_name_or_path": model, "num_processes": gpus, "max_length": seq, "bf16": True,
        "per_device_train_batch_size": micro, "gradient_accumulation_steps": share // micro,
        "distributed_type": "FSDP", "tensor_parallel_size": tp if tp > 1 else None, "context_parallel_size": cp if cp > 1 else None,
        "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": fields.pop("offload", False)},
    }  # fmt: skip
    return without_none(**keys, **fields)


def update_on_megatron(
    model: str | None, gpus: int, batch: int, micro: int, seq: int, degrees: Mapping[str, int | None], **fields: Any
) -> Mapping[str, Any]:
    """As `update_on_fsdp`; `degrees` by the names of the flags, such as "tensor_model_parallel_size", and `fields` likewise. A flag
    that is False is left out."""
    flags: dict[str, Any] = {
        "rl_update": True,
        "bf16": True,
        "use_distributed_optimizer": True,
        "world_size": gpus,
        "global_batch_size": batch,
    }
    flags |= {"micro_batch_size": micro, "seq_length": seq, "hf_checkpoint": model, **degrees, **fields}
    return {"MODEL_ARGS": {f"--{name.replace('_', '-')}": value for name, value in flags.items() if value not in (None, False)}}


def update_of_full_recompute(asked: bool, kind: str | None = None) -> dict[str, Any]:
    """Megatron-LM's flags of recomputation: of whole layers, unless `kind` is "selective"."""
    if not asked:
        return {}
    if kind == "selective":
        return {"recompute_granularity": kind}
    return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
