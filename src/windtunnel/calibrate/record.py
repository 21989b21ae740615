"""The record of a fit: constants, rows, command, and errors before and after."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import FileError

Errors = Mapping[str, Sequence[float]]
"""Family -> signed errors of its rows, in percent of the measured value."""


@dataclass(frozen=True)
class FamilyErrors:
    """Mean and median of |error| and mean error of a family's rows, in percent, before and after a fit."""

    family: str
    rows: int
    mean_before: float
    mean_after: float
    median_before: float
    median_after: float
    bias_before: float
    bias_after: float


@dataclass(frozen=True)
class FitRecord:
    """One fit. `constants`: name -> (before, after), in SI units; `rows`: ids of the rows that took part."""

    fit: str
    command: str
    constants: Mapping[str, tuple[float, float]]
    families: tuple[FamilyErrors, ...]
    rows: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON shows it, numbers to four digits."""
        return {
            "fit": self.fit,
            "command": self.command,
            "constants": {name: {"before": round_figure(a), "after": round_figure(b)} for name, (a, b) in self.constants.items()},
            "families": [
                {name: round_figure(value) if isinstance(value, float) else value for name, value in asdict(each).items()}
                for each in self.families
            ],
            "rows": list(self.rows),
        }

    def write(self, path: Path) -> None:
        """Store the record; FileError if the file cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise FileError(str(path), error.strerror or str(error), "a file that can be written") from None

    def lines(self) -> list[str]:
        """The record for a terminal."""
        text = [f"{name:28s} {a:12.4g} -> {b:12.4g}" for name, (a, b) in self.constants.items()]
        for each in self.families:
            pairs = (("mean |error|", each.mean_before, each.mean_after), ("median", each.median_before, each.median_after))
            shown = "   ".join(f"{name} {a:5.2f} -> {b:5.2f} %" for name, a, b in pairs)
            text.append(
                f"{each.family:24s} {each.rows:4d} rows   {shown}   bias {each.bias_before:+6.2f} -> {each.bias_after:+6.2f} %"
            )
        return text


def round_figure(value: float) -> float:
    """Rounded to the four digits of records and stored fits."""
    return float(f"{value:.4g}")


def compare_errors(before: Errors, after: Errors) -> tuple[FamilyErrors, ...]:
    """Errors of every family before and after."""
    return tuple(
        FamilyErrors(
            family,
            len(old),
            fmean(map(abs, old)),
            fmean(map(abs, after[family])),
            median(map(abs, old)),
            median(map(abs, after[family])),
            fmean(old),
            fmean(after[family]),
        )
        for family, old in before.items()
    )
