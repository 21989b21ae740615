"""The question as a whole: how much of a run's time trains, how long it takes, and what would help."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.goodput.choices import IntervalChoice, SpareChoice, interval_choice, spare_choices
from windtunnel.goodput.closed import Steady, steady
from windtunnel.goodput.conditions import DAY, Conditions
from windtunnel.goodput.levers import Lever, levers
from windtunnel.goodput.of_job import conditions_of, with_saving
from windtunnel.goodput.run import expected_seconds, ideal_seconds
from windtunnel.goodput.simulate import Simulated, simulate
from windtunnel.predict.category import Category, StepGroup
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.step import predict
from windtunnel.spec.job import Job

SCHEMA = "windtunnel.goodput/1"
MOST_FAILURES = 5e7
"""Failures in all simulated runs together; beyond it fewer runs are simulated. About 20 CPU seconds."""
CUT_OFF = 20.0
"""A simulated run is cut off at this many times its expected length."""


@dataclass(frozen=True)
class Goodput:
    """A run with failures. Seconds, bytes and shares unless a name says otherwise."""

    job: Job
    reliability: str
    step_time_s: float
    conditions: Conditions
    steady: Steady
    """The run in closed form."""
    interval_s: float
    """Seconds of training between checkpoints."""
    interval_steps: int
    interval: IntervalChoice
    """The best interval."""
    spares: tuple[SpareChoice, ...]
    """The best number of spare nodes, then none and the job's own."""
    levers: tuple[Lever, ...]
    expected_days: float | None
    """Days that the job's tokens take, or the stated wall time."""
    work_days: float | None
    """Days of training that a run holds without failures; None for a stated wall time."""
    simulated: Simulated | None
    """The same runs simulated; None where that was not asked for or the run never ends."""
    ends: bool
    fits: bool = True
    """Whether a step fits into memory."""

    @property
    def ettr(self) -> float:
        """Share of wall time that trains and is not lost: simulated if it was, else in closed form."""
        return self.simulated.ettr.mean if self.simulated is not None else self.steady.ettr

    @property
    def goodput(self) -> float:
        """ETTR times the share of training that slow nodes do not take."""
        return self.simulated.goodput.mean if self.simulated is not None else self.steady.goodput


def goodput(
    job: Job,
    days: float | None = None,
    replicas: int = 1000,
    seed: int = 1,
    *,
    prediction: Prediction | None = None,
    network: str = "closed",
    threads: int = 1,
    progress: Callable[[float], object] | None = None,
) -> Goodput:
    """The run of `job` with the failures of `job.reliability`.

    The run has `job.tokens`, or takes `days` of wall time. `replicas`: simulated runs, 0 for the closed form alone; equal for
    equal `seed`, whatever `threads`. `prediction`: of a step, in place of a new one over `network`.
    SpecError for a job without `reliability`,
    or without a length, and for what cannot be.
    """
    _check(job, days, replicas)
    prediction = prediction if prediction is not None else predict(job, network)
    job = with_saving(job, prediction.saving)
    step, exposed = prediction.step_time_s, exposed_share(prediction)
    base = conditions_of(job, step, exposed)
    choice = interval_choice(base)
    chosen = base.interval if base.interval is not None else _whole_steps(choice.best, base.shortest, step)
    run = replace(base, interval=chosen)
    answer = steady(run)
    work = ideal_seconds(job, step) if days is None else None
    expected = days if work is None else expected_seconds(run, answer, work) / DAY if answer.progresses else None
    simulated = None
    if replicas and expected is not None and answer.progresses:
        horizon = expected * DAY * (1.0 if work is None else CUT_OFF)
        affordable = int(MOST_FAILURES / max(1.0, expected * DAY / answer.mtbf))
        if affordable:
            length = math.inf if work is None else work
            simulated = simulate(run, chosen, length, horizon, min(replicas, affordable), seed, threads, progress)
    return Goodput(
        job=job,
        reliability=job.reliability.id if job.reliability is not None else "",
        step_time_s=step,
        conditions=run,
        steady=answer,
        interval_s=chosen,
        interval_steps=max(1, round(chosen / step)),
        interval=choice,
        spares=spare_choices(base),
        levers=levers(base),
        expected_days=expected,
        work_days=work / DAY if work is not None else None,
        simulated=simulated,
        ends=answer.progresses,
        fits=prediction.fits,
    )


def _whole_steps(interval: float, shortest: float, step: float) -> float:
    """The interval in whole steps, not below the shortest."""
    return max(round(interval / step), math.ceil(shortest / step - 1e-9), 1) * step


def exposed_share(prediction: Prediction) -> float:
    """Share of a step in which the slowest stage waits for communication between nodes."""
    if prediction.job.cluster.gpus <= prediction.job.cluster.node.domain:
        return 0.0
    inside = {"tp"} if prediction.job.plan.tp <= prediction.job.cluster.node.domain else set()
    keys = {one.key for one in Category if one.group is StepGroup.COMMUNICATION and one.axis not in inside}
    return sum(seconds for key, seconds in prediction.breakdown.items() if key in keys) / prediction.step_time_s


def _check(job: Job, days: float | None, replicas: int) -> None:
    if days is not None and not (math.isfinite(days) and 0.0 < days <= 36_500.0):
        raise SpecError("days", days, "days of wall time above zero, at most 36500")
    if days is None and job.tokens is None:
        raise SpecError(
            "tokens", Nothing(), "the tokens of the run, or days of wall time", "Write --set tokens=1e12, or --days 30."
        )
    if not 0 <= replicas <= 1_000_000:
        raise SpecError("replicas", replicas, "0 (closed form alone) to 1000000")
