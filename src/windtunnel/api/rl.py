"""A step of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.base.errors import WindtunnelError
    from windtunnel.rl import RLJob, RLStep


def rl_predict(
    job: str | Path | Mapping[str, Any] | RLJob,
    on: str | Path | None = None,
    overrides: Sequence[str] = (),
    log: str | Path | None = None,
    record: bool = False,
) -> RLStep:
    """How long a step of reinforcement learning takes: rollout, log-probabilities, update, weights to the engine; who waits, what
    each phase holds in memory, what it costs.

    `job`: a file or a table with `workload = "rl"`, or a launch script of verl's trainers; `on`: the machine of a script, or
    another one for a file. `overrides`: fields such as "rl.response=3000~1.2<8192", "plan.tp=2", "cluster.gpus=64". `log`: a
    console log of verl; its lengths of prompts and responses replace those of the job. `record`: the answer keeps what passes
    of the rollout did, for pages.

    Raises WindtunnelError with what to type instead.
    """
    from windtunnel.jobs.rl import load_rl
    from windtunnel.rl import RLJob, predict_rl

    return predict_rl(job if isinstance(job, RLJob) else load_rl(job, on, overrides, log), record)


def rl_splits(
    job: str | Path | Mapping[str, Any] | RLJob,
    on: str | Path | None = None,
    overrides: Sequence[str] = (),
    log: str | Path | None = None,
    record: bool = False,
) -> list[tuple[RLJob, RLStep | WindtunnelError]]:
    """The job with each number of nodes for the rollout, in its mode (split, if it is colocated), best first. Arguments and errors
    as of `rl_predict`; what cannot run comes last, with its reason."""
    from windtunnel.jobs.rl import load_rl
    from windtunnel.rl import RLJob, try_splits

    return try_splits(job if isinstance(job, RLJob) else load_rl(job, on, overrides, log), record)
