"""What published steps say of an answer: how far predictions of steps like it were from what was measured.

`catalog/rl_accuracy.toml` has a line for modes that take turns and one for those whose rollout runs ahead; `benchmarks/rl_rows.py
--record` writes it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windtunnel.rl.mode import MODES
from windtunnel.serving.published import FigureErrors
from windtunnel.spec.loading.catalog import ROOT
from windtunnel.spec.loading.files import read_table


@dataclass(frozen=True)
class PublishedRL:
    """Errors of the step of `rows` published configurations of `studies` studies, in `modes`: those that take turns, whose
    step is the sum of its phases ("in_turn"), or whose rollout runs ahead ("ahead")."""

    modes: str
    rows: int
    studies: int
    step: FigureErrors

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        return {"modes": self.modes, "rows": self.rows, "studies": self.studies, "step": vars(self.step)}


def steps_like(mode: str) -> PublishedRL | None:
    """The catalogue's line for a mode; None where no step of its kind was compared."""
    return catalogue_steps().get("in_turn" if MODES[mode].takes_turns else "ahead")


@functools.cache
def catalogue_steps() -> Mapping[str, PublishedRL]:
    """The catalogue's lines by modes."""
    found = {}
    for entry in read_table(ROOT / "rl_accuracy.toml")["steps"]:
        errors = FigureErrors.of_table(entry["step"])
        found[entry["modes"]] = PublishedRL(entry["modes"], entry["rows"], entry["studies"], errors)
    return found


def rl_record_text(lines: list[PublishedRL], source: str) -> str:
    """The catalogue's file as text."""
    parts = [
        "# Written by `benchmarks/rl_rows.py --record`; do not edit. Errors in percent of the measured step.\n"
        f'source = "{source}"\n'
    ]
    parts += [
        f'[[steps]]\nmodes = "{line.modes}"\nrows = {line.rows}\nstudies = {line.studies}\nstep = {line.step.as_text()}\n'
        for line in lines
    ]
    return "\n".join(parts)
