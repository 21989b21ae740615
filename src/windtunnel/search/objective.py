"""What a search makes small: one number of a plan, and a lower bound of it that follows from the bound of the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.search.outcome import Outcome
from windtunnel.spec import Job

HOUR = 3600.0


@dataclass(frozen=True)
class Objective:
    """`value` of a plan, less is better; `bound`: no plan of the same job whose step takes `seconds` and has `tokens` is better.

    `shown`: the number that people read, in `unit`; it may be better the larger it is. `needs`: why a job has no such number, or
    "".
    """

    name: str
    unit: str
    value: Callable[[Job, Outcome, int], float]
    bound: Callable[[Job, Floats, Floats], Floats]
    shown: Callable[[float], float]
    needs: Callable[[Job], str] = lambda job: ""


def _same(value: float) -> float:
    return value


def _per_token(value: float) -> float:
    return 1.0 / value if value else 0.0


def _priced(job: Job) -> str:
    if job.cluster.price_per_gpu_hour is None:
        return "The cluster states no price: --set cluster.price_per_gpu_hour=2.5."
    return ""


def _rate(job: Job) -> float:
    """Dollars a second of the whole cluster."""
    return job.cluster.gpus * (job.cluster.price_per_gpu_hour or 0.0) / HOUR


MILLION = 1e6

OBJECTIVES: dict[str, Objective] = {
    "time": Objective("time", "s a step", lambda job, of, _: of.step_time_s, lambda job, s, _: s, _same),
    "tokens": Objective(
        "tokens", "tokens/s", lambda job, of, _: 1.0 / of.tokens_per_s, lambda job, s, tokens: s / tokens, _per_token
    ),
    "dollars": Objective(
        "dollars",
        "$ a million tokens",
        lambda job, of, tokens: (of.cost_per_step or 0.0) / tokens * MILLION,
        lambda job, s, tokens: s * _rate(job) / tokens * MILLION,
        _same,
        _priced,
    ),
    "gpus": Objective(
        "gpus",
        "GPUs",
        lambda job, of, _: float(job.cluster.gpus),
        lambda job, s, _: np.full(len(s), float(job.cluster.gpus)),
        _same,
    ),
}
"""The registry: one line an objective."""


def objectives(names: str) -> tuple[Objective, ...]:
    """Objectives of a list separated by commas; UnknownName for another, SpecError for one that is named twice."""
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in OBJECTIVES:
            raise UnknownName("--objective", name, tuple(OBJECTIVES))
    if len(set(wanted)) < len(wanted):
        raise SpecError("--objective", names, "each objective once")
    return tuple(OBJECTIVES[name] for name in wanted)


def tokens_of(job: Job, global_batch: Int64s) -> Floats:
    """Tokens of a step for columns of batches."""
    return np.asarray(global_batch * float(job.plan.seq), np.float64)
