"""docs/faults.json and docs/faults.md, with the lines of all harnesses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.faults.cases import CASES
from tests.faults.causes.listed import LINES as CAUSES
from tests.faults.checkpoints.listed import LINES as CHECKPOINTS
from tests.faults.page import page
from tests.faults.recovery.listed import LINES as RECOVERY
from tests.faults.tally import Tally, read_tallies, write_tallies

KEPT = Path(__file__).parents[2] / "docs" / "faults.json"


def publish(new: Mapping[str, Tally]) -> None:
    """Puts tallies in the place of those of the same names, and writes the page anew."""
    tallies = read_tallies(KEPT) | dict(new)
    write_tallies(KEPT, tallies)
    KEPT.with_suffix(".md").write_text(page((*CASES, *CAUSES, *RECOVERY, *CHECKPOINTS), tallies), encoding="utf-8")
