"""A step of reinforcement learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.options import asks
from windtunnel.rl.options import RLOptions

if TYPE_CHECKING:
    from windtunnel.base.errors import WindtunnelError
    from windtunnel.rl import RLJob, RLStep


@asks(RLOptions)
def rl_predict(asked: RLOptions) -> RLStep:
    """How long a step of reinforcement learning takes: rollout, log-probabilities, update, weights to the engine; who waits, what
    each phase holds in memory, what it costs.

    `job`: a file or a table with `workload = "rl"`, or a launch script of a trainer; `on`: the machine of a script, or another one
    for a file. `overrides`: fields such as "rl.response=3000~1.2<8192", "plan.tp=2", "cluster.gpus=64".

    Raises WindtunnelError with what to type instead.
    """
    from windtunnel.rl import predict_rl

    return predict_rl(_load(asked), asked.record)


@asks(RLOptions)
def rl_splits(asked: RLOptions) -> list[tuple[RLJob, RLStep | WindtunnelError]]:
    """The job with each number of nodes for the rollout, in its mode or the one that divides the GPUs, best first. Arguments and
    errors as of `rl_predict`; what cannot run comes last, with its reason."""
    from windtunnel.rl import try_splits

    return try_splits(_load(asked), asked.record)


def _load(asked: RLOptions) -> RLJob:
    from windtunnel.jobs.rl import load_rl
    from windtunnel.rl import RLJob

    return asked.job if isinstance(asked.job, RLJob) else load_rl(asked.job, asked.on, asked.overrides, asked.log)
