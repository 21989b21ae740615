"""The numbers of a closed-form prediction by which changed jobs are compared, predicted once for each job of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from windtunnel.predict.answer.read import StepNumbers
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.step import predict_built
from windtunnel.spec import Job, check
from windtunnel.workload import Workload, build


class Stepped(Protocol):
    """What a prediction and its facts have in common."""

    @property
    def job(self) -> Job:
        """The job."""

    @property
    def step_time_s(self) -> float:
        """Seconds of a step."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all GPUs."""

    @property
    def breakdown(self) -> Mapping[str, float]:
        """Seconds of the step by part."""

    @property
    def fits(self) -> bool:
        """Whether it fits into memory."""


@dataclass(frozen=True)
class StepFacts:
    """Numbers of a prediction. Bytes: `spare` ones are free on the fullest stage (negative: missing), `fullest` the most that a GPU
    holds. Seconds, US dollars, joules; `breakdown` as in a prediction."""

    job: Job
    step_time_s: float
    tokens_per_s: float
    mfu: float
    breakdown: Mapping[str, float]
    fits: bool
    spare: float
    fullest: float
    cost_per_step: float | None
    energy_j_per_step: float | None

    @classmethod
    def of(cls, found: Prediction | StepNumbers) -> StepFacts:
        """The facts of a prediction."""
        return cls(
            found.job,
            found.step_time_s,
            found.tokens_per_s,
            found.mfu,
            found.breakdown,
            found.fits,
            -max(stage.missing for stage in found.memory),
            max(stage.total for stage in found.memory),
            found.cost_per_step,
            found.energy_j_per_step,
        )


MOST = 256
"""Facts that are remembered at most; the oldest go first."""

_KNOWN: ContextVar[dict[Job, StepFacts] | None] = ContextVar("_KNOWN", default=None)


@contextmanager
def remember_facts() -> Iterator[None]:
    """Inside, `facts_of` predicts each job once. Nothing is kept afterwards."""
    if _KNOWN.get() is not None:
        yield
        return
    token = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def facts_of(job: Job, workload: Workload | None = None) -> StepFacts:
    """The closed-form facts of a job; `workload`, where it is built already. Raises as `predict`."""
    known = _KNOWN.get()
    if known is not None and job in known:
        return known[job]
    found = StepFacts.of(predict_built(build(check(job)) if workload is None else workload))
    if known is not None:
        known[job] = found
        if len(known) > MOST:
            del known[next(iter(known))]
    return found
