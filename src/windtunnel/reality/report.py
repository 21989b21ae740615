"""What a validation says: one score a row and quantity, and the summary of each family. Plain data.

Errors are signed percentages of the measured value: 100 * (predicted - measured) / measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from windtunnel.reality.bars import Line

_T = TypeVar("_T")


@dataclass(frozen=True)
class Score:
    """One measured quantity of one row beside its prediction, or the reason why there is none.

    `measured` and `predicted` are in the quantity's unit (s, GiB, µs, %). `claimed_pct` is the relative error that the prediction
    itself states. `source_seen` is false for numbers recalled and not read again; `fitted` says that constants of the
    model were fitted on this family, so that its error is no test of foresight.
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

    @property
    def error_pct(self) -> float | None:
        """Signed error in percent, or None for a skipped row."""
        if self.skipped is not None or self.measured is None or self.predicted is None:
            return None
        return 100.0 * (self.predicted - self.measured) / self.measured

    def as_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = {
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
            return made | {"skipped": self.skipped}
        return made | {"predicted": self.predicted, "error_pct": self.error_pct, "claimed_pct": self.claimed_pct, "job": self.job}


@dataclass(frozen=True)
class Family:
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


@dataclass(frozen=True)
class Report:
    """All scores of a validation. `headline` leaves out rows whose number was recalled and not read in its source."""

    rows: tuple[Score, ...]
    ignored_columns: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    bars: tuple[Line, ...] = ()

    @property
    def headline(self) -> tuple[Family, ...]:
        """Over rows whose source was seen: a line for each table and quantity, fitted families and test-only ones apart.

        Tables stay apart so that a long one does not drown a short one.
        """
        lines: list[Family] = []
        for table, quantity, fitted in _in_order((score.table, score.quantity, score.fitted) for score in self.rows):
            chosen = [score for score in self.rows if (score.table, score.quantity, score.fitted) == (table, quantity, fitted)]
            name = f"{table or 'rows'}, {'fitted' if fitted else 'test only'}"
            lines.append(summary(name, quantity, [score for score in chosen if score.source_seen], fitted))
        return tuple(line for line in lines if line.n or line.skipped)

    @property
    def families(self) -> tuple[Family, ...]:
        """By family and quantity, in the order of the data; recalled rows are in here too."""
        keys = _in_order((score.family, score.quantity) for score in self.rows)
        groups: dict[tuple[str, str], list[Score]] = {key: [] for key in keys}
        for score in self.rows:
            groups[score.family, score.quantity].append(score)
        return tuple(summary(*key, scores, fitted=any(score.fitted for score in scores)) for key, scores in groups.items())

    def as_dict(self) -> dict[str, Any]:
        """The shape that `validate --json` prints."""
        return {
            "rows": [score.as_dict() for score in self.rows],
            "families": [family.as_dict() for family in self.families],
            "headline": [family.as_dict() for family in self.headline],
            "bars": [line.as_dict() for line in self.bars],
            "sources": list(self.sources),
            "ignored_columns": list(self.ignored_columns),
        }


def summary(family: str, quantity: str, scores: Iterable[Score], fitted: bool = False) -> Family:
    """Errors of `scores`, which share a quantity; the figures are None where no row was scored."""
    listed = list(scores)
    errors = [error for score in listed if (error := score.error_pct) is not None]
    if not errors:
        return Family(family, quantity, 0, None, None, None, None, len(listed), fitted)
    sizes = [abs(error) for error in errors]
    if not all(math.isfinite(size) for size in sizes):
        raise ValueError(f"{family}, {quantity}: a prediction is not finite")
    return Family(
        family, quantity, len(errors), fmean(sizes), median(sizes), fmean(errors), max(sizes), len(listed) - len(errors), fitted
    )


def _in_order(items: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(items))
