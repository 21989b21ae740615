"""What the runs of a case say together, and the file that keeps it: docs/faults.json, from which docs/faults.md is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from tests.faults.outcome import Outcome, share_bounds, times

FAILURES = 3
"""Examples that are kept of runs that were not right."""


@dataclass(frozen=True)
class Tally:
    """`known` of the `runs` expected a name or an end, and `right` of them got it; `wrong` runs named or did what they must not.

    `seconds`: median and most from the fault to the word, None without; `figures`: median, least and most of each detail; `load`:
    the machine's load average, runnable processes over one minute, when the first and the last run ended.
    """

    runs: int
    known: int
    right: int
    wrong: int
    seconds: tuple[float, float] | None = None
    figures: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    load: tuple[float, float] | None = None


def tally(outcomes: Sequence[Outcome], load: tuple[float, float] | None = None) -> Tally:
    """The tally of some runs of one case."""
    known = [one.right for one in outcomes if one.right is not None]
    figures = {}
    for name in dict.fromkeys(name for one in outcomes for name in one.details):
        values = [one.details[name] for one in outcomes if name in one.details]
        figures[name] = (float(np.median(values)), float(min(values)), float(max(values)))
    median, most = times(outcomes)
    missed = [f"not right: {one.said or 'nothing was said'}" for one in outcomes if one.right is False]
    wrong = [f"wrong: {one.wrong[0]}" for one in outcomes if one.wrong]
    return Tally(
        len(outcomes), len(known), sum(known), len(wrong), None if np.isnan(median) else (median, most), figures,
        tuple(_plain(text) for text in (missed[:FAILURES] + wrong[:FAILURES])), load,
    )  # fmt: skip


def bound_of_right(one: Tally) -> str:
    """The share of right ones at 95 %, as text; empty where nothing was expected."""
    if not one.known:
        return ""
    low, high = share_bounds(one.right, one.known)
    return f"> {low:.1%}" if high == 1.0 else f"< {high:.1%}" if low == 0.0 else f"{low:.1%} to {high:.1%}"


def bound_of_wrong(one: Tally) -> str:
    """The largest share of wrong ones at 95 %."""
    return f"< {share_bounds(one.wrong, one.runs)[1]:.1%}"


def read_tallies(path: Path) -> dict[str, Tally]:
    """Tallies by the names of their cases; none where there is no file yet."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Tally]) if path.exists() else {}


def write_tallies(path: Path, tallies: Mapping[str, Tally]) -> None:
    """Writes the file, a readable one."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(dict(tallies)), indent=1) + b"\n")


def _plain(text: str) -> str:
    """One line without what Markdown would read."""
    return " ".join(text.split()).replace("|", "/").replace("<", "less than ").rstrip(".")[:300]
