"""What a job's own earlier run shows of its sections, in the terms of a prediction: the usual, to hold a later run against."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.errors import SpecError
from windtunnel.records.sections import Sections
from windtunnel.runs.fleet.expected import ExpectedSections
from windtunnel.runs.fleet.observed import FEWEST, CallTimes, ObservedSections, observed_sections
from windtunnel.spec import Job

_SURE = 2.0
"""Standard errors of a median that its error bar has."""


def usual_sections(sections: Sections, job: Job, blocking: bool, last: int | None = None) -> ExpectedSections:
    """The settled steps of a run as an expectation: medians over steps and the ranks of a stage, without slow ranks.

    An error is two standard errors of the median over steps, that of calls the scatter of one. `compare_sections` of another run
    takes it as `expected`; a factor that a prediction has wrong in both cancels. SpecError for fewer than `FEWEST` settled steps.
    """
    seen = observed_sections(sections, job, blocking, last)
    if len(seen.steps) < FEWEST:
        raise SpecError("RUN", f"{len(seen.steps)} settled steps", f"{FEWEST} or more", "It is to be what is usual.")
    ranks = _ranks_of_stages(seen)
    own = {section: _medians(values, ranks) for section, values in seen.own.items()}
    errors = {section: max(_error(values[mine]) for mine in ranks) for section, values in seen.own.items()}
    calls = {key: (float(np.median(times.seconds)), times.count) for key, times in seen.calls.items()}
    everybody = np.logical_or.reduce(ranks)
    return ExpectedSections(
        float(np.nanmedian(seen.step[everybody])), own, _medians(seen.data, ranks), _medians(seen.between, ranks),
        _medians(seen.starved, ranks), calls, errors, _error(seen.step[everybody]), _call_error(list(seen.calls.values())), False,
    )  # fmt: skip


def _ranks_of_stages(seen: ObservedSections) -> list[Bools]:
    """For each stage from 0 on: the ranks to go by; all of it, where all are slow."""
    slow = [rank for odd in seen.slow for rank in odd.ranks]
    good = ~np.isin(seen.ranks, slow)
    stages = [seen.stage == stage for stage in range(int(seen.stage.max()) + 1)]
    return [mine & good if (mine & good).any() else mine for mine in stages]


def _medians(values: Floats, ranks: list[Bools]) -> Floats:
    """Of each stage; 0 where nothing is known."""
    known = [values[mine][np.isfinite(values[mine])] for mine in ranks]
    return np.array([float(np.median(one)) if len(one) else 0.0 for one in known])


def _error(values: Floats) -> float:
    """Relative error of the median over steps; 0 where there is none."""
    by_step = np.array([np.median(column[np.isfinite(column)]) for column in values.T if np.isfinite(column).any()])
    if not len(by_step) or np.median(by_step) <= 0:
        return 0.0
    spread = 1.4826 * float(np.median(np.abs(by_step - np.median(by_step))))
    return _SURE * 1.25 * spread / float(np.sqrt(len(by_step)) * np.median(by_step))


def _call_error(kinds: list[CallTimes]) -> float:
    """Relative scatter of one call, of the kind that takes longest; 0 without calls."""
    if not kinds:
        return 0.0
    times = max(kinds, key=lambda one: float(np.median(one.seconds)) * one.count).seconds
    middle = float(np.median(times))
    return 1.4826 * float(np.median(np.abs(times - middle))) / middle if middle > 0 else 0.0
