"""The accuracy bars of the project: rows, and the largest allowed error on them.

A bar selects rows by their columns (family, framework, size, precision) and does not affect the model. Bars are listed in
`catalog/publications/`. A bar without limits only shows the figure; this is used for rows that a fit has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.reality.rows.publications import When, columns_of, publications
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.reality.score.scores import FamilySummary, Score, summary

NO_BAR = "no bar"
Pick = Callable[[TrainingRow], bool]
ScoreRow = Callable[[TrainingRow], list[Score]]


@dataclass(frozen=True)
class Bar:
    """Rows by `pick`, their `quantity`, the most that mean and median |error| may be, in percent, and the share to be predicted."""

    name: str
    quantity: str
    pick: Pick
    mean: float | None = None
    median: float | None = None
    share: float = 0.0


@dataclass(frozen=True)
class Line:
    """A bar and the errors of its rows."""

    bar: Bar
    found: FamilySummary

    @property
    def holds(self) -> bool:
        """Whether the bar is met; a bar without scored rows is not."""
        bar, summary = self.bar, self.found
        if summary.mape_pct is None or summary.median_abs_pct is None or summary.n < bar.share * (summary.n + summary.skipped):
            return False
        return (bar.mean is None or summary.mape_pct <= bar.mean) and (bar.median is None or summary.median_abs_pct <= bar.median)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.bar.name,
            "wanted": self.target_text,
            "holds": self.holds if self.target_text != NO_BAR else None,
            **{key: value for key, value in self.found.as_dict().items() if key not in ("family", "fitted")},
        }

    @property
    def target_text(self) -> str:
        """The bar in words."""
        limits = (("mean", self.bar.mean), ("median", self.bar.median))
        parts = [f"{name} ≤ {limit:g} %" for name, limit in limits if limit is not None]
        if self.bar.share:
            parts.append(f"≥ {100 * self.bar.share:g} % predicted")
        return ", ".join(parts) or NO_BAR


@lru_cache(maxsize=1)
def bars() -> tuple[Bar, ...]:
    """The bars of `catalog/publications/`, in the order of the accuracy page."""
    entries = [entry for publication in publications().values() for entry in publication.bars]
    return tuple(
        Bar(entry.name, entry.quantity, _picked_by(entry.rows), entry.mean, entry.median, entry.share)
        for entry in sorted(entries, key=lambda entry: entry.order)
    )


def _picked_by(rows: Sequence[When]) -> Pick:
    return lambda row: any(when.holds(columns_of(row)) for when in rows)


def measure(rows: Sequence[TrainingRow], score: ScoreRow, wanted: Iterable[Bar] | None = None) -> list[Line]:
    """Every bar (of `wanted`, or of the catalogue) with rows among `rows`; a row under several bars is scored once."""
    known: dict[str, list[Score]] = {}
    lines = []
    for bar in bars() if wanted is None else wanted:
        picked = [row for row in rows if bar.pick(row)]
        for row in picked:
            if row.id not in known:
                known[row.id] = score(row)
        if picked:
            lines.append(_line(bar, [each for row in picked for each in known[row.id]]))
    return lines


def of_scores(rows: Sequence[TrainingRow], scores: Iterable[Score]) -> list[Line]:
    """The same from existing scores."""
    known: dict[str, list[Score]] = {}
    for each in scores:
        known.setdefault(each.id, []).append(each)
    return measure([row for row in rows if row.id in known], lambda row: known[row.id])


def _line(bar: Bar, scores: list[Score]) -> Line:
    return Line(bar, summary(bar.name, bar.quantity, [each for each in scores if each.quantity == bar.quantity]))
