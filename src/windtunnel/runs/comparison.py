"""A measured run beside the prediction of its job: where the steps part, and why."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.json_text import plain_data
from windtunnel.predict import predict
from windtunnel.records.run import Run
from windtunnel.runs.calibrate import CalibrationFit, fit
from windtunnel.runs.causes import StepCause, causes_of
from windtunnel.runs.expected import expected_run
from windtunnel.runs.factors import nearest_call, stages_of
from windtunnel.runs.log_facts import LogFacts, log_facts, update_of
from windtunnel.runs.observed import CallKind, Observed, observe
from windtunnel.runs.suspects import SuspectedCause, suspected_causes
from windtunnel.spec import Job

MOST_CAUSES = 3


@dataclass(frozen=True)
class ComparedPart:
    """Seconds of a step that one part of it takes, measured and expected: the mean over the traced ranks and their stages."""

    name: str
    measured: float
    expected: float


@dataclass(frozen=True)
class CallPart:
    """Calls of one kind: seconds of one without waiting, and how often in a step, measured and expected (NaN: not there)."""

    comm: str
    axis: str
    bytes: float
    measured_each: float
    expected_each: float
    measured_count: float
    expected_count: float


@dataclass(frozen=True)
class RankPart:
    """A rank: seconds of kernels in a step, measured and expected of its stage, and seconds that others waited for it."""

    rank: int
    stage: int
    compute: float
    expected_compute: float
    kept_waiting: float
    waited: float


@dataclass(frozen=True)
class RunComparison:
    """Everything of a comparison; seconds. `explained`: what the prediction becomes with all factors at once. `parts`, `calls` and
    `ranks` are empty for a run without events of a device."""

    job: Job
    measured_step: float
    step_spread: float  # standard deviation over the measured steps; of a log without its peaks
    steps: int
    expected_step: float
    explained_step: float
    parts: tuple[ComparedPart, ...]
    calls: tuple[CallPart, ...]
    ranks: tuple[RankPart, ...]
    causes: tuple[StepCause, ...]
    fit: CalibrationFit | None
    relative_error: float
    """One sigma of the expected step."""
    log: LogFacts | None = None
    """What the steps say beside their median; of a run without events of a device."""
    suspects: tuple[SuspectedCause, ...] = ()
    """What may slow such a run down, nearest to the measured step first."""

    def as_dict(self) -> dict[str, Any]:
        """JSON: stable keys, SI units."""
        return {
            "schema": "windtunnel.comparison/1",
            "job": self.job.name,
            "measured_step_s": self.measured_step,
            "measured_step_std_s": self.step_spread,
            "steps": self.steps,
            "expected_step_s": self.expected_step,
            "explained_step_s": self.explained_step,
            "parts": [vars(part) for part in self.parts],
            "calls": [vars(call) for call in self.calls],
            "ranks": [vars(rank) for rank in self.ranks],
            "causes": [
                {"key": c.key, "factor": c.factor, "seconds": c.seconds, "words": c.words, "test": c.test} for c in self.causes
            ],
            "relative_error": self.relative_error,
            "log": None if self.log is None else plain_data(self.log),
            "suspects": [plain_data(suspect) for suspect in self.suspects],
            "factors": [] if self.fit is None else [vars(factor) for factor in self.fit.factors.factors],
        }


def compare_run(run: Run, job: Job) -> RunComparison:
    """A run against the prediction of its job. A run of logs alone gives the steps, what they say of themselves, and suspects."""
    measured = observe(run, job)
    prediction = predict(job)
    step = prediction.step_time_s
    if not measured.kernels:
        seconds = _step_seconds(run, job)
        settled = seconds[1:] if len(seconds) > 2 else seconds
        middle = float(np.median(settled)) if len(settled) else float("nan")
        update = update_of(run)
        if update is not None:  # the phase of a step of reinforcement learning that the job is
            middle, settled = update[1], np.full(len(settled), update[1])
        spread = 1.4826 * float(np.median(np.abs(settled - middle))) if len(settled) > 1 else 0.0  # peaks stand apart in `log`
        return RunComparison(
            job, middle, spread, len(settled), step, step, (), (), (), (), None, prediction.relative_error,
            log_facts(run, prediction), suspected_causes(job, middle, step),
        )  # fmt: skip
    expected = observe(expected_run(job), job)
    fitted = fit(measured, job, expected)
    explained = predict(_with_all(job, fitted)).step_time_s
    spread = float(np.std(measured.step)) if len(measured.step) > 1 else 0.0
    return RunComparison(
        job, float(np.median(measured.step)), spread, len(measured.step), step, explained,
        _parts(measured, expected, job), _calls(measured, expected), _ranks(measured, expected, job),
        causes_of(job, fitted.factors, step), fitted, prediction.relative_error,
    )  # fmt: skip


def _step_seconds(run: Run, job: Job) -> Floats:
    """Seconds of a log's steps. A log that states a rate alone is taken at the job's tokens and GPUs."""
    seconds = run.steps.seconds[np.isfinite(run.steps.seconds)]
    rate = run.facts.get("tokens_per_second_per_gpu")
    if len(seconds) or not isinstance(rate, (int, float)) or not rate > 0:
        return seconds
    return np.full(len(run.steps), job.plan.global_batch * job.plan.seq / (rate * job.cluster.gpus))


def _with_all(job: Job, fitted: CalibrationFit) -> Job:
    """The job with the calibration, and with the slow ranks that were found."""
    slow = [{"ranks": list(odd.ranks), "factor": max(1.0, odd.factor)} for odd in fitted.factors.odd if odd.kind == "rank"]
    changed = job.model_copy(update={"calibration": fitted.calibration})
    if not slow or job.unequal is not None:
        return changed
    from windtunnel.spec.unequal import Unequal

    return changed.model_copy(update={"unequal": Unequal.model_validate({"slow": slow})})


def _parts(measured: Observed, expected: Observed, job: Job) -> tuple[ComparedPart, ...]:
    """Kernel classes, then what the breakdown says of calls, copies and idle time."""
    stage = stages_of(measured.ranks, job)
    parts = []
    for name in dict.fromkeys((*expected.kernels, *measured.kernels)):
        here = expected.kernels.get(name, np.zeros(len(expected.ranks)))[stage]
        there = measured.kernels.get(name, np.zeros(len(measured.ranks)))
        parts.append(ComparedPart(name, float(there.mean()), float(here.mean())))
    parts.sort(key=lambda part: -max(part.measured, part.expected))
    for name, label in (
        ("exposed", "exposed communication"),
        ("hidden", "hidden communication"),
        ("copy", "copies"),
        ("host", "idle: not launched yet"),
        ("sync", "idle: the host waits"),
        ("queue", "idle: launched, waits"),
    ):
        both = (float(np.mean([getattr(time, name) for time in side.times])) for side in (measured, expected))
        parts.append(ComparedPart(label, *both))
    return tuple(parts)


def _calls(measured: Observed, expected: Observed) -> tuple[CallPart, ...]:
    nothing = (float("nan"), 0.0)
    pairs: dict[CallKind, tuple[tuple[float, float], tuple[float, float]]] = {}
    left = dict(measured.calls)
    for key, here in expected.calls.items():
        near = nearest_call(key, left)
        pairs[key] = (nothing if near is None else left.pop(near), here)
    pairs |= {key: (there, nothing) for key, there in left.items()}
    rows = [
        CallPart(key.comm.name.lower(), key.axis, key.bytes, there[0], here[0], there[1], here[1])
        for key, (there, here) in pairs.items()
    ]
    return tuple(sorted(rows, key=_call_seconds, reverse=True))


def _call_seconds(row: CallPart) -> float:
    measured, expected = row.measured_each * row.measured_count, row.expected_each * row.expected_count
    return max(measured if measured == measured else 0.0, expected if expected == expected else 0.0)


def _ranks(measured: Observed, expected: Observed, job: Job) -> tuple[RankPart, ...]:
    stage = stages_of(measured.ranks, job)
    rows = [
        RankPart(
            int(rank), int(stage[at]), float(measured.compute[at]), float(expected.compute[stage[at]]),
            float(measured.waited[:, at].sum()), float(measured.waited[at].sum()),
        )
        for at, rank in enumerate(measured.ranks)
    ]  # fmt: skip
    return tuple(rows)
