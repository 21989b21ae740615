"""One score per measured quantity, and the errors of a group of scores. Plain data.

Errors are signed percentages of the measured value: 100 * (predicted - measured) / measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean, median
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.published import RunKind
from windtunnel.spec import Job


def describe_plan(job: Job) -> str:
    """The plan of a job that is scored, in a row of a table."""
    plan = job.plan
    degrees = f"tp {plan.tp} pp {plan.pp} vpp {plan.vpp} dp {job.dp}"
    return f"{degrees} mbs {plan.micro_batch} gbs {plan.global_batch} seq {plan.seq} {plan.recompute}"


def errors_stated_by(prediction: Prediction) -> dict[str, Any]:
    """What a prediction says of the error of its step, as fields of `Score`."""
    return {
        "claimed_pct": 100.0 * prediction.relative_error,
        "implied_pct": 100.0 * prediction.error_of_parts,
        "longest": prediction.longest_s,
    }


@dataclass(frozen=True)
class Score:
    """One measured quantity of one row beside its prediction, or the reason why there is none.

    `measured` and `predicted` are in the quantity's unit (s, GiB, µs, %). `claimed_pct` is the relative error that the prediction
    itself states. `source_seen` is false for numbers recalled and not read again; `fitted` says that constants of the
    model were fitted on this family, so that its error is no test of foresight. `framework` is the published one; `kind` is
    that of the predicted job. `implied_pct` is the error that the prediction's parts imply, before their record moves it; `longest`
    the end of the predicted interval.
    """

    id: str
    family: str
    quantity: str
    measured: float | None = None
    predicted: float | None = None
    skipped: str | None = None
    assumptions: tuple[str, ...] = ()
    source_seen: bool = True
    fitted: bool = False
    complete: bool = False
    claimed_pct: float | None = None
    job: str = ""
    precision: str = ""
    framework: str = ""
    table: str = ""
    kind: RunKind | None = None
    implied_pct: float | None = None
    longest: float | None = None

    def lies_inside(self, times: float = 1.0) -> bool | None:
        """Whether the measured value lies within `times` the stated error, or between the prediction and the end of its interval;
        None where nothing is stated."""
        error = self.error_pct
        if error is None or self.claimed_pct is None or self.measured is None or self.predicted is None:
            return None
        reach = 0.0 if self.longest is None else self.predicted + times * (self.longest - self.predicted)
        return abs(error) <= times * self.claimed_pct or self.predicted <= self.measured <= reach

    @property
    def error_pct(self) -> float | None:
        """Signed error in percent, or None for a skipped row."""
        if self.skipped is not None or self.measured is None or self.predicted is None:
            return None
        return 100.0 * (self.predicted - self.measured) / self.measured

    def as_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "id": self.id,
            "family": self.family,
            "quantity": self.quantity,
            "measured": self.measured,
            "source_seen": self.source_seen,
            "fitted": self.fitted,
            "complete": self.complete,
            "assumptions": list(self.assumptions),
        }
        if self.skipped is not None:
            return data | {"skipped": self.skipped}
        data |= {"predicted": self.predicted, "error_pct": self.error_pct, "claimed_pct": self.claimed_pct, "job": self.job}
        return data if self.longest is None else data | {"longest": self.longest}


@dataclass(frozen=True)
class FamilySummary:
    """Errors of one family's rows in one quantity: `n` scored rows, mean and median of |error|, mean error, largest |error|."""

    family: str
    quantity: str
    n: int
    mape_pct: float | None
    median_abs_pct: float | None
    bias_pct: float | None
    max_abs_pct: float | None
    skipped: int
    fitted: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "quantity": self.quantity,
            "n": self.n,
            "mape_pct": self.mape_pct,
            "median_abs_pct": self.median_abs_pct,
            "bias_pct": self.bias_pct,
            "max_abs_pct": self.max_abs_pct,
            "skipped": self.skipped,
            "fitted": self.fitted,
        }


def summary(family: str, quantity: str, scores: Iterable[Score], fitted: bool = False) -> FamilySummary:
    """Errors of `scores`, which share a quantity; the figures are None where no row was scored."""
    listed = list(scores)
    errors = [error for score in listed if (error := score.error_pct) is not None]
    if not errors:
        return FamilySummary(family, quantity, 0, None, None, None, None, len(listed), fitted)
    sizes = [abs(error) for error in errors]
    if not all(math.isfinite(size) for size in sizes):
        raise ValueError(f"{family}, {quantity}: a prediction is not finite")
    return FamilySummary(
        family, quantity, len(errors), fmean(sizes), median(sizes), fmean(errors), max(sizes), len(listed) - len(errors), fitted
    )
