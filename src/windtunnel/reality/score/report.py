"""The result of a validation: all scores, the summary of each family and table, and the bars. Plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, TypeVar

from windtunnel.base.dataclasses import dataclass
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.score.bars import Line
from windtunnel.reality.score.choices import PlanChoice, by_family
from windtunnel.reality.score.goodput import GoodputScore
from windtunnel.reality.score.scores import FamilySummary, Score, summary
from windtunnel.reality.score.verdicts import Verdicts

_T = TypeVar("_T")


@dataclass(frozen=True)
class Coverage:
    """`rows` step times, of which `share_pct` percent lie within their stated relative error; one sigma would be 68 %."""

    which: str
    rows: int
    share_pct: float
    twice_pct: float
    """The same within twice that error."""
    claimed_pct: float
    """Median of what is stated."""


@dataclass(frozen=True)
class Report:
    """All scores of a validation. `headline` leaves out rows whose number was recalled and not read in its source."""

    rows: tuple[Score, ...]
    ignored_columns: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    bars: tuple[Line, ...] = ()
    in_view: Fitted = frozenset()
    """Families of no fit whose publication's rules were settled with them in view."""
    goodput: tuple[GoodputScore, ...] = ()
    """Published goodput of whole runs; only where the catalogue's own tables are scored."""
    choices: tuple[PlanChoice, ...] = ()
    aside: int = 0
    """Rows left out of `choices` because their time says nothing of their plan."""
    verdicts: tuple[Verdicts, ...] = ()
    """Families with failed runs: what was called fitting, and out of memory."""

    @property
    def headline(self) -> tuple[FamilySummary, ...]:
        """For rows whose source was read: a line for each table and quantity, with fitted and test-only families separate.

        Tables are separate so that a long one does not dominate.
        """
        lines: list[FamilySummary] = []
        for table, quantity, fitted in _in_order((score.table, score.quantity, score.fitted) for score in self.rows):
            chosen = [score for score in self.rows if (score.table, score.quantity, score.fitted) == (table, quantity, fitted)]
            name = f"{table or 'rows'}, {'fitted' if fitted else 'test only'}"
            lines.append(summary(name, quantity, [score for score in chosen if score.source_seen], fitted))
        return tuple(line for line in lines if line.n or line.skipped)

    @property
    def families(self) -> tuple[FamilySummary, ...]:
        """By family and quantity, in the order of the data; recalled rows are in here too."""
        keys = _in_order((score.family, score.quantity) for score in self.rows)
        groups: dict[tuple[str, str], list[Score]] = {key: [] for key in keys}
        for score in self.rows:
            groups[score.family, score.quantity].append(score)
        return tuple(summary(*key, scores, fitted=any(score.fitted for score in scores)) for key, scores in groups.items())

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """How many step times lie within the relative error that their prediction states, test-only rows and fitted ones apart."""
        coverages = []
        for fitted in (False, True):
            claims = [score for score in self.rows if score.fitted is fitted and _states(score)]
            if claims:
                coverages.append(_coverage("fitted" if fitted else "test only", claims))
        return tuple(coverages)

    @property
    def family_coverage(self) -> tuple[Coverage, ...]:
        """The same for each family."""
        groups: dict[str, list[Score]] = {}
        for score in filter(_states, self.rows):
            groups.setdefault(score.family, []).append(score)
        return tuple(_coverage(family, scores) for family, scores in groups.items())

    def label(self, family: FamilySummary) -> str:
        """Whether a family's error is a test: "fitted", "rules in view", or empty for a test."""
        if family.fitted:
            return "fitted"
        return "rules in view" if (family.family, family.quantity) in self.in_view else ""

    def as_dict(self) -> dict[str, Any]:
        """The shape that `validate --json` prints."""
        return {
            "rows": [score.as_dict() for score in self.rows],
            "families": [family.as_dict() | {"label": self.label(family)} for family in self.families],
            "headline": [family.as_dict() for family in self.headline],
            "bars": [line.as_dict() for line in self.bars],
            "choices": [choice.as_dict() for choice in self.choices],
            "choice_families": [line.as_dict() for line in by_family(self.choices)],
            "choices_set_aside": self.aside,
            "memory_verdicts": [line.as_dict() for line in self.verdicts],
            "within_stated_error": [vars(each) for each in self.coverage],
            "family_coverage": [vars(line) for line in self.family_coverage],
            "goodput": [each.as_dict() for each in self.goodput],
            "sources": list(self.sources),
            "ignored_columns": list(self.ignored_columns),
        }


def _states(score: Score) -> bool:
    return score.quantity == "step_time_s" and score.lies_inside() is not None


def _coverage(which: str, scores: Sequence[Score]) -> Coverage:
    once, twice = (100.0 * sum(score.lies_inside(times) is True for score in scores) / len(scores) for times in (1.0, 2.0))
    return Coverage(which, len(scores), once, twice, median(score.claimed_pct or 0.0 for score in scores))


def _in_order(items: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(items))
