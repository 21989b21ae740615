"""What a run under a fault was expected to tell, what was told, and what many such runs say with which certainty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from windtunnel.fleet.findings.finding import Finding, Verdict

if TYPE_CHECKING:
    from tests.faults.bench import Bench


GROUPS = {
    "see": "What is wrong with a running job",
    "causes": "Scripts with one thing wrong",
    "recover": "Jobs that are hit and go on",
    "checkpoints": "Checkpoints that are hit",
}
"""Groups of cases, with their headings."""


@dataclass(frozen=True)
class Outcome:
    """`right`: what is wrong was named; None where nothing was expected to be. `wrong`: names that are not the fault's.
    `seconds`: from the fault to the word, NaN where the run is judged after its end; `excused`: those of them in which a rank or
    who looks was ready to run and had no core, at most."""

    right: bool | None
    wrong: tuple[str, ...] = ()
    said: str = ""
    seconds: float = float("nan")
    details: Mapping[str, float] = field(default_factory=dict)
    excused: float = 0.0


@dataclass(frozen=True)
class Case:
    """A fault and how often it is tried: `count` in the whole matrix, `cut` in CI's. `needed`: smallest share of right ones in the
    cut; None where the machine's load can change it, so that the cut reports it only. `limit`: seconds that a detection may take.
    """

    name: str
    what: str
    run: Callable[[Bench, int], Outcome]
    count: int
    cut: int
    needed: float | None = None
    limit: float = float("inf")
    missing: Callable[[], str] = lambda: ""  # what the case needs and this machine lacks
    group: str = "see"


@dataclass(frozen=True)
class Line:
    """A case of another harness, as a line of the page: its name, what it is, and how many faults the whole matrix has."""

    name: str
    what: str
    count: int
    group: str


def wrong_names(findings: Sequence[Finding]) -> tuple[str, ...]:
    """What findings say that is not true. That a rank had no core is the kernel's own count: it is true of a machine that others
    use, and no wrong name."""
    return tuple(one.text for one in findings if one.verdict is not Verdict.NO_CORE)


def named(findings: Sequence[Finding], fits: Callable[[Finding], bool]) -> Outcome:
    """Right where any finding fits; all others are wrong names."""
    others = wrong_names([one for one in findings if not fits(one)])
    return Outcome(any(fits(one) for one in findings), others, "; ".join(one.text for one in findings))


def share_bounds(hits: int, count: int) -> tuple[float, float]:
    """95 % bounds of the share that `hits` of `count` shows: one-sided at 0 and at `count`, where 0 of N is < 3/N; else two-sided
    (Clopper and Pearson, Biometrika 1934)."""
    if hits in (0, count):
        edge = 0.05 ** (1 / count)
        return (0.0, 1.0 - edge) if hits == 0 else (edge, 1.0)
    return float(stats.beta.ppf(0.025, hits, count - hits + 1)), float(stats.beta.ppf(0.975, hits + 1, count - hits))


def passed(case: Case, outcomes: Sequence[Outcome]) -> str:
    """What of a cut cannot be put down to the machine's load; empty where nothing is wrong."""
    if case.needed is None:
        return ""
    if wrong := [one.wrong for one in outcomes if one.wrong]:
        return f"{case.name}: {len(wrong)} of {len(outcomes)} runs named what is not wrong: {wrong[0]}"
    right = sum(one.right is not False for one in outcomes)
    if right < case.needed * len(outcomes):
        return (
            f"{case.name}: {right} of {len(outcomes)} right; one said: {next(one.said for one in outcomes if one.right is False)!r}"
        )
    return ""


def times(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Median and largest of the known seconds; NaN without."""
    known = np.array([one.seconds for one in outcomes if np.isfinite(one.seconds)])
    return (float(np.median(known)), float(known.max())) if len(known) else (float("nan"), float("nan"))
