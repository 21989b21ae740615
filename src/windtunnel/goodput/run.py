"""The whole run at a step time, in closed form: cheap enough to ask for every plan of a search."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.goodput.closed import Steady, steady
from windtunnel.goodput.conditions import DAY, Conditions
from windtunnel.goodput.of_job import conditions_of
from windtunnel.spec.job import Job


@dataclass(frozen=True)
class WholeRun:
    """The run of a job with failures. `days`: expected wall time, None if the job states no tokens or never ends; `ideal_days`:
    without failures and checkpoints."""

    ettr: float
    goodput: float
    days: float | None
    ideal_days: float | None
    interval_s: float
    mtbf_s: float


def run_of(job: Job, step_time_s: float, exposed: float = 0.0) -> WholeRun:
    """ETTR and expected days of the whole run of `job`, whose steps take `step_time_s` seconds without failures.

    `exposed`: share of a step that waits for communication between nodes, which a checkpoint's flush over the same NICs
    stretches. Closed form, no simulation. SpecError for a job without `reliability`.
    """
    run = conditions_of(job, step_time_s, exposed)
    answer = steady(run)
    ideal = ideal_seconds(job, step_time_s)
    days = None
    if ideal is not None and answer.progresses:
        days = expected_seconds(run, answer, ideal) / DAY
    return WholeRun(answer.ettr, answer.goodput, days, ideal / DAY if ideal is not None else None, answer.interval, answer.mtbf)


def ideal_seconds(job: Job, step_time_s: float) -> float | None:
    """Seconds of all steps without failures; None if the job states no tokens."""
    if job.tokens is None:
        return None
    return job.tokens / (job.plan.global_batch * job.plan.seq) * step_time_s


def expected_seconds(run: Conditions, answer: Steady, work: float) -> float:
    """Wall time of `work` seconds of training at the long-run pace, and the first start."""
    return work / answer.goodput + run.init.mean
