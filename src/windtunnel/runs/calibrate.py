"""Fits a job's calibration to runs of it: a handful of physical factors, with their errors and the error on steps left out.

Parts of a run.

What a calibration by measured runs shows: its factors, and how well it predicts the steps that were left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, fields, replace
from windtunnel.base.errors import SpecError
from windtunnel.predict import predict
from windtunnel.records.run import Events, Run, Steps
from windtunnel.runs.expected import expected_run
from windtunnel.runs.factors import Factor, Factors, factors_of
from windtunnel.runs.observed import Observed, observe
from windtunnel.sheet.blocks import Cell, Change, Column, Figure, Lines, Section, Sheet, Table, Tornado
from windtunnel.sheet.sentence import Sentence, quote
from windtunnel.spec import Job
from windtunnel.spec.calibration import Calibration
from windtunnel.traces.windows import windows_of

ROUNDS = 5
"""Rounds of prediction and correction: computation beside longer calls is slower itself, so factors depend on each other."""

_SETTLED = 0.002
_LEAST, _MOST = 0.1, 30.0
"""Limits of a factor: beyond them the job is another one."""


@dataclass(frozen=True)
class CalibrationFit:
    """A calibration, the factors behind it (with their errors, on the job without calibration) and what is odd beside them."""

    calibration: Calibration
    factors: Factors


@dataclass(frozen=True)
class Calibrated:
    """A fit to runs. `before`, `after`: predicted step over each measured step that was left out of the fit, minus 1; empty where
    the runs have a single step."""

    fit: CalibrationFit
    before: Floats
    after: Floats
    steps_fitted: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        table = self.fit.calibration.model_dump(mode="json")
        return {"calibration": table, "before": self.before.tolist(), "after": self.after.tolist()}


def fit(measured: Observed, job: Job, expected: Observed | None = None) -> CalibrationFit:
    """The factors with which the prediction of a job shows what was measured. `expected`: what the job's own expected run shows,
    where it is known already."""
    calibration = job.calibration or Calibration()
    first: Factors | None = None
    for _ in range(ROUNDS):
        current = job.model_copy(update={"calibration": calibration})
        if expected is None:
            expected = observe(expected_run(current), current)
        factors, expected = factors_of(measured, expected, job), None
        first = factors if first is None else first
        worst = 0.0
        for factor in factors.factors:
            value = min(max(factor.value, _LEAST), _MOST)
            calibration = calibration.times(factor.path, value)
            worst = max(worst, abs(math.log(value)))
        if worst < _SETTLED:
            break
    assert first is not None
    own = job.calibration or Calibration()
    settled = tuple(replace(f, value=calibration.factor(f.path) / own.factor(f.path)) for f in first.factors)
    errors = {f.path: f.error for f in settled if f.error == f.error}
    return CalibrationFit(calibration.model_copy(update={"errors": errors}), replace(first, factors=settled))


def calibrate(runs: Sequence[Run], job: Job) -> Calibrated:
    """One calibration for all runs: the mean of their factors, weighted by their steps. Every second step of a run is left out of
    the fit, and the prediction is judged on those. SpecError for runs without events of a device."""
    if not runs:
        raise SpecError("RUN", "no run", "one run or more")
    fits, left_out, counts = [], list[float](), list[int]()
    for run in runs:
        observed = observe(run, job)
        if not observed.kernels:
            raise SpecError(
                "RUN", run.source, "a run with kernels: profiler traces of at least one rank", "A log has step times only."
            )
        numbers = observed.numbers
        chosen = numbers[::2] if len(numbers) > 1 else numbers
        left_out += observed.step[np.isin(numbers, chosen, invert=True)].tolist()
        fits.append(fit(observe(_only(run, chosen.tolist()), job), job))
        counts.append(len(chosen))
    merged = _mean(fits, counts, job, "; ".join(run.source for run in runs))
    measured = np.array(left_out)
    plain = predict(job).step_time_s
    tuned = predict(job.model_copy(update={"calibration": merged.calibration})).step_time_s
    return Calibrated(merged, plain / measured - 1.0, tuned / measured - 1.0, sum(counts))


def _only(run: Run, numbers: list[int]) -> Run:
    """The run with the steps of these numbers; the others' windows stay known by their events only."""
    if len(run.steps) == 0 or not np.isin(run.steps.step, numbers).any():
        return run
    return with_steps(run, numbers)


def _mean(fits: list[CalibrationFit], counts: list[int], job: Job, source: str) -> CalibrationFit:
    """Geometric means of the factors of several fits."""
    if len(fits) == 1:
        return CalibrationFit(fits[0].calibration.model_copy(update={"source": source}), fits[0].factors)
    own = job.calibration or Calibration()
    paths = dict.fromkeys(factor.path for one in fits for factor in one.factors.factors)
    calibration, errors, merged = own, dict[str, float](), list[Factor]()
    for path in paths:
        mine = [
            (factor, count)
            for one, count in zip(fits, counts, strict=True)
            for factor in one.factors.factors
            if factor.path == path
        ]
        weights = np.array([count for _, count in mine], np.float64)
        logs = np.array([math.log(factor.value) for factor, _ in mine])
        mean = float((weights * logs).sum() / weights.sum())
        spread = float(np.sqrt((weights * (logs - mean) ** 2).sum() / weights.sum() / max(1, len(logs) - 1)))
        value = math.exp(mean)
        errors[path] = value * spread
        calibration = calibration.times(path, value)
        merged.append(replace(mine[0][0], value=value, error=errors[path], samples=sum(factor.samples for factor, _ in mine)))
    factors = replace(fits[0].factors, factors=tuple(merged))
    return CalibrationFit(calibration.model_copy(update={"errors": errors, "source": source}), factors)


def with_steps(run: Run, numbers: Sequence[int]) -> Run:
    """The run with the steps of these numbers alone: their lines, the device's events in their windows, and what launched those."""
    kept = np.isin(run.steps.step, list(numbers))
    steps = Steps(**{f.name: getattr(run.steps, f.name)[kept] for f in fields(Steps)})
    ranks = []
    for trace in run.ranks:
        events = trace.events
        inside = np.zeros(len(events), np.bool_)
        for window in windows_of(run, trace):
            if window.step in numbers:
                inside |= (events.begin >= window.begin - 1e-9) & (events.begin < window.end)
        launches = np.isin(events.correlation, events.correlation[inside & (events.correlation >= 0)]) & (events.correlation >= 0)
        chosen = inside | launches
        columns = {
            f.name: getattr(events, f.name)[chosen] for f in fields(Events) if f.name not in ("names", "groups", "group_names")
        }
        ranks.append(
            replace(trace, events=Events(**columns, names=events.names, groups=events.groups, group_names=events.group_names))
        )
    return replace(run, steps=steps, ranks=tuple(ranks))


def calibration_sheet(result: Calibrated) -> Sheet:
    """What `calibrate` shows."""
    factors = result.fit.factors.factors
    columns = (Column("factor"), *(Column(head, True) for head in ("measured / predicted", "error", "ms a step", "samples")))
    rows = []
    for factor in factors:
        known = factor.error == factor.error
        error = Cell(f"±{factor.error:.3f}", factor.error) if known else Cell("-")
        cells = (Cell(f"{factor.value:.3f}", factor.value), error, Cell(f"{factor.expected_s * 1e3:,.3g}", factor.expected_s))
        rows.append((Cell(factor.path), *cells, Cell(str(factor.samples), float(factor.samples))))
    changes = tuple(
        Change(quote(factor.path), (1.0 - factor.value,), (f"{factor.value:.3f}",)) for factor in factors
    )  # fmt: skip
    line = Sentence("One step only: no step was left out to judge the fit on.")
    if len(result.before):
        line = Sentence(
            "Fitted to {steps} steps. Prediction of the {left} steps that were left out: {before} before, {after} after.",
            steps=result.steps_fitted, left=len(result.before), before=f"{np.mean(result.before):+.1%}",
            after=f"{np.mean(result.after):+.1%}",
        )  # fmt: skip
    about = "Orange, to the left: it takes longer than predicted. Blue, to the right: less long."
    table = Table("factors", columns, tuple(rows), brief=True)
    tornado = Tornado("measured over predicted", changes, about, detail=True)
    return Sheet(
        "A calibration by measured runs", "", _figures(result),
        (
            Section("", (table, Lines((line,), brief=True))),
            Section("Factors", (replace(table, brief=False, detail=True), Lines((line,), detail=True), tornado)),
        ),
        titled=True,
    )  # fmt: skip


def _figures(result: Calibrated) -> tuple[Figure, ...]:
    if not len(result.before):
        return ()
    return tuple(
        Figure(key, label, float(np.mean(values)), "%", None, f"{np.mean(values):+.1%}")
        for key, label, values in (("before", "error before", result.before), ("after", "error after", result.after))
    )
