"""The score of a sample as text, and the page docs/mutants.md."""

from __future__ import annotations

import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .operators import Mutant
from .rooms import ROOMS, ROOT
from .running import Fate

EQUIVALENT = Path(__file__).parent / "equivalent.toml"
_INTRODUCTION = (
    "Is there a test that notices when a formula is wrong? `make mutants` changes one operator, comparison, number, branch or",
    "returned value at a time, in a random sample over the rooms of formulas, and runs the tests that call the changed function:",
    "those of its room first, then golden figures and laws. Tests that start commands as processes see no mutant, so the score is",
    "a lower bound. A mutant that runs out of time counts as killed.",
)
HISTORY = Path(__file__).parent / "samples.toml"
KILLED = ("room", "wide", "time")


@dataclass(frozen=True)
class Row:
    """A mutant and what became of it."""

    room: str
    mutant: Mutant
    fate: Fate

    @property
    def survived(self) -> bool:
        return self.fate.how not in KILLED


def equivalent() -> dict[str, str]:
    """Name of a mutant -> why no test can or need tell it from the original, as judged by hand."""
    return {entry["mutant"]: entry["why"] for entry in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["equivalent"]}


def earlier() -> list[str]:
    """A line for each sample that was written down by hand."""
    samples = tomllib.loads(HISTORY.read_text(encoding="utf-8"))["sample"]
    return [f"| {one['date']} | {one['seed']} | {one['mutants']} | {one['killed']} | {one['what']} |" for one in samples]


def table(rows: list[Row], possible: dict[str, int]) -> str:
    """One line a room, and one for all."""
    why = equivalent()
    lines = [
        "| room | possible | tried | killed by its own tests | by wide tests | by time | equivalent | survived | score |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for room in [*possible, "all"]:
        mine = [row for row in rows if room in ("all", row.room)]
        count = Counter(row.fate.how for row in mine)
        same = sum(row.survived and row.mutant.name in why for row in mine)
        alive = sum(row.survived for row in mine) - same
        killed = sum(count[how] for how in KILLED)
        score = f"{killed / (killed + alive):.0%}" if killed + alive else "–"
        all_of = sum(possible.values()) if room == "all" else possible[room]
        cells = [room, all_of, len(mine), *(count[how] for how in KILLED), same, alive, score]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def left_out(possible: Iterable[str]) -> list[str]:
    """The rooms of which a sample has none, as lines of the page."""
    rooms = [f"`{room}`" for room in ROOMS if room not in possible]
    return [f"Not in this sample, and so not in its score: {', '.join(rooms)}.", ""] if rooms else []


def page(rows: list[Row], possible: dict[str, int], seed: int) -> str:
    """docs/mutants.md."""
    why = equivalent()
    alive = sorted((row for row in rows if row.survived), key=lambda row: (row.mutant.file, row.mutant.line))
    real = [f"* `{_where(row)}`: {_change(row)}{_unseen(row)}" for row in alive if row.mutant.name not in why]
    same = [f"* `{_where(row)}`: {_change(row)}. {why[row.mutant.name]}" for row in alive if row.mutant.name in why]
    commit, date = _git("rev-parse", "--short=10", "HEAD"), _git("log", "-1", "--format=%cs")
    return "\n".join(
        [
            "# Mutants of the formulas",
            "",
            *_INTRODUCTION,
            "",
            f"{len(rows)} mutants, seed {seed}, at {commit} of {date}.",
            "",
            table(rows, possible),
            "",
            *left_out(possible),
            "Equivalent mutants are judged by hand, with the reason, and do not count in the score. A sample whose survivors got",
            "tests says less than one of another seed.",
            "",
            "## Earlier samples",
            "",
            "| date | seed | mutants | killed | what it was |",
            "|---|---:|---:|---:|---|",
            *earlier(),
            "",
            "## Survivors",
            "",
            *(real or ["None."]),
            "",
            "## Equivalent",
            "",
            *(same or ["None."]),
            "",
        ]
    )


def _where(row: Row) -> str:
    return f"{row.mutant.file}:{row.mutant.line} {row.mutant.function}"


def _change(row: Row) -> str:
    return f"`{row.mutant.was}` → `{row.mutant.now}`"


def _unseen(row: Row) -> str:
    return " (none of these tests calls it)" if row.fate.how == "unseen" else ""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
