"""Rare causes as findings, in words: who loses how much to what, at which steps, and where it lies in the step.

Evaluations, saves, and batches that take all ranks longer are part of a job. They are told with their price, apart from what is
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.fleet.findings.finding import Finding, Verdict, format_ranks
from windtunnel.fleet.findings.rare import CALLS, NO_CORE, RareCause
from windtunnel.fleet.findings.steps import PARTS, StepTable
from windtunnel.records.sections import NO_CORE as WAITS_IN_SECTION
from windtunnel.records.sections import NO_CORE_IN_STEP, Section, Sections

LOOKED_AT = 8
"""Steps with the cause whose records are read for where it lies."""
REGULAR = 0.35
"""Relative spread of the distances below which they are told as a period, such as of a timer."""


@dataclass(frozen=True)
class _Words:
    """What a part is called."""

    verdict: Verdict
    one: str
    """"rank 2 {}": with the seconds of one occurrence."""
    all: str
    routine: bool = False
    """Whether it is part of a job where all ranks do it."""


_COMPUTES = _Words(Verdict.SLOW_RANK, "computes {time} longer", "compute {time} longer (longer batches, or all slow down)", True)
_WORDS = {
    "forward": _COMPUTES,
    "backward": _COMPUTES,
    "optimizer": _COMPUTES,
    "inference": _Words(
        Verdict.EVALUATION, "runs forwards without gradients (an evaluation) for {time}", "evaluate for {time}", True
    ),
    "data": _Words(Verdict.DATA, "waits {time} longer for the next batch", "wait {time} longer for the next batch"),
    "saves": _Words(Verdict.SAVING, "saves for {time}", "save for {time}", True),
    "gaps": _Words(Verdict.LAUNCH_SKEW, "collects garbage for {time}", "collect garbage for {time}"),
    "outside": _Words(
        Verdict.OUTSIDE,
        "loses {time} outside of forward, backward, optimizer, data and calls (Python between them: logging, files, locks)",
        "lose {time} outside of forward, backward, optimizer, data and calls (Python between them: logging, files, locks)",
    ),
    NO_CORE: _Words(Verdict.NO_CORE, "waits {time} longer for a core", "wait {time} longer for a core"),
    CALLS: _Words(Verdict.BANDWIDTH, "", "spend {time} more in calls that all have entered (retries, a network that stalls)"),
}
_SECTIONS = {
    "forward": Section.FORWARD, "backward": Section.BACKWARD, "optimizer": Section.OPTIMIZER, "inference": Section.INFERENCE,
    "data": Section.DATA, "saves": Section.CHECKPOINT, "gaps": Section.HOST_GAP, CALLS: Section.CALL,
}  # fmt: skip


def rare_findings(causes: Sequence[RareCause], table: StepTable, sections: Sections) -> tuple[list[Finding], list[Finding]]:
    """What is wrong, and what is part of the job, costliest first. `sections`: records of some of the steps, for where it lies."""
    wrong: list[Finding] = []
    routine: list[Finding] = []
    for cause in causes:
        words = _WORDS[cause.part]
        (routine if words.routine and not cause.ranks else wrong).append(_finding(cause, words, table, sections))
    return wrong, routine


def _finding(cause: RareCause, words: _Words, table: StepTable, sections: Sections) -> Finding:
    hosts = tuple(
        sorted({table.hosts[row] for row, rank in enumerate(table.ranks) if int(rank) in cause.ranks and table.hosts[row]})
    )
    who = f"{format_ranks(cause.ranks)}{f' on {hosts[0]}' if len(hosts) == 1 else ''}" if cause.ranks else "all ranks"
    doing = words.one if len(cause.ranks) == 1 else words.all
    does = doing.format(time=say_seconds(cause.event))
    evidence = [f"in {len(cause.steps)} of the steps {int(table.steps[0])} to {int(table.steps[-1])}"]
    if cause.equals == cause.equals:
        evidence.append(f"its equals spend {say_seconds(cause.equals)} on that in the same steps")
    where = _place_of(cause, sections)
    if where:
        evidence.append(where)
    if cause.ranks and cause.part not in ("forward", "backward", "optimizer"):
        excluded: tuple[str, ...] = ("a slow device: in the other steps it takes as long as its equals",)
    else:
        excluded = ()
    verdict = Verdict.COMPUTE if words.verdict is Verdict.SLOW_RANK and not cause.ranks else words.verdict
    text = f"{who} {does} {_when(cause)}; that costs {say_seconds(cause.cost)} of the mean step ({cause.share:.1%})"
    return Finding(
        verdict, cause.ranks, hosts, 1.0 - cause.chance, cause.share, cause.cost, int(cause.steps[0]), text, tuple(evidence),
        excluded, cause.part, cause.period, len(cause.steps), cause.event,
    )  # fmt: skip


def _when(cause: RareCause) -> str:
    """At which steps."""
    first, last = int(cause.steps[0]), int(cause.steps[-1])
    if cause.period:
        nth = {2: "2nd", 3: "3rd"}.get(cause.period, f"{cause.period}th")
        return f"at every {nth} step (first step {first})"
    apart = np.diff(cause.steps)
    if len(apart) >= 3 and float(apart.std()) < REGULAR * float(apart.mean()):
        return (
            f"about every {float(apart.mean()):.0f} steps (first step {first})"
            if apart.mean() > 1.5
            else f"in steps {first} to {last}"
        )
    return f"now and then ({len(cause.steps)} steps from {first} to {last})"


def _place_of(cause: RareCause, sections: Sections) -> str:
    """Names of what took longest in such steps, or between which sections the time lies that is in none."""
    rank = cause.ranks[0] if cause.ranks else int(sections.rank.min()) if len(sections) else -1
    here = np.flatnonzero(
        (sections.rank == rank) & np.isin(sections.step, cause.steps[-LOOKED_AT:]) & np.isfinite(sections.seconds)
    )
    if not len(here):
        return ""
    if cause.part == "outside":
        return _longest_gap(sections, here)
    kind = _SECTIONS.get(cause.part)
    named = [
        row
        for row in here.tolist()
        if sections.section[row] in (kind, Section.RANGE) and 0 <= sections.name[row] < len(sections.names)
    ]
    spent: dict[str, float] = {}
    for row in named:
        name = sections.names[sections.name[row]]
        if name not in (WAITS_IN_SECTION, NO_CORE_IN_STEP):
            spent[name] = spent.get(name, 0.0) + float(sections.seconds[row])
    return f"most of it in {max(spent, key=lambda one: spent[one])}" if spent else ""


def _longest_gap(sections: Sections, here: Int64s) -> str:
    """ "between data and forward": where a step has most time in no section."""
    spent: dict[tuple[str, str], float] = {}
    kind = np.where(np.isin(sections.section, PARTS), sections.section, Section.STEP)
    for step in np.unique(sections.step[here]).tolist():
        rows = here[sections.step[here] == step]
        rows = rows[np.argsort(sections.begin[rows], kind="stable")]
        until, before = float("nan"), ""
        for row in rows.tolist():
            begin, end = float(sections.begin[row]), float(sections.begin[row] + sections.seconds[row])
            name = Section(int(kind[row])).name.lower()
            if sections.section[row] == Section.STEP:
                until, before = begin, "the step's begin"
                continue
            if kind[row] == Section.STEP:
                continue
            if begin > until:
                spent[before, name] = spent.get((before, name), 0.0) + begin - until
            if not end <= until:
                until, before = end, name
    if not spent:
        return ""
    first, then = max(spent, key=lambda pair: spent[pair])
    return f"it lies between {first} and {then}"


def say_seconds(seconds: float) -> str:
    """Seconds as people read them: "3.00 s", "83.0 ms"."""
    return f"{seconds:.2f} s" if seconds >= 1.0 else f"{seconds * 1e3:.1f} ms"
