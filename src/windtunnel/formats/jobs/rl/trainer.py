"""What a launch script or a configuration of an RL trainer states, and the words that it states it in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from windtunnel.formats.jobs.scripts.said import Said

_SHOWN = 12
"""Names that are listed of those that were not read."""

_SHARE = 4
"""The mean length, of which trainers state only the longest, is that over this; assumed."""

UPDATE_ALONE = "the update of the actor alone: rollout, log-probabilities and advantages of a step are no part of this job"
"""What is said of a job that is one phase of a step."""

LONGEST_SAMPLES = "samples of "
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


def unread(said: Said, costless: Collection[str]) -> list[str]:
    """What is said of names that a reader of a trainer asked nothing of; nothing where there are none."""
    left = said.left_over(costless)
    shown = ", ".join(left[:_SHOWN]) + (f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else "")
    return [f"not read: {shown}"] if left else []
