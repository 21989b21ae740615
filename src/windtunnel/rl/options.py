"""What `rl-predict` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.options import argument, option

if TYPE_CHECKING:
    from windtunnel.rl import RLJob


@dataclass(frozen=True)
class RLOptions:
    """What a step of reinforcement learning is asked with."""

    job: str | Path | Mapping[str, Any] | RLJob = argument(
        'A job file with workload = "rl", a file of verl, slime, OpenRLHF, NeMo RL or TRL, or a model on a machine.',
        metavar="JOB",
        allowed='a job file with workload = "rl", or a script of an RL trainer',
        example="docs/rl.md has a file to begin with.",
    )
    on: str | Path | None = option("The machine of a script, or another one.", None, metavar="CLUSTER", offers="machines")
    overrides: Sequence[str] = shared.sets()
    log: str | Path | None = option(
        "A trainer's console log: its lengths are taken, its phases stand beside predicted ones.", None, metavar="FILE"
    )
    record: bool = option("The answer keeps what passes of the rollout did, for pages.", False, shown=False)


@dataclass(frozen=True)
class RLPredictOptions(RLOptions):
    """The same for the command line, where trying divisions of the GPUs is one of the options."""

    splits: bool = option("Try every division of the nodes into rollout and update.", False)
