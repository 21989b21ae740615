"""Evaluation of a run that makes progress: all findings from its sections.

What happens in some steps only is judged by what it costs the mean step (`rare`), over all steps that are known.

Time of a step that is no computing: waiting for the next batch, Python between the sections, saves, garbage collections.

A rank is compared with its equals by all that it does itself, computing included (`busy`), with the tests of `slow_ranks`; waiting
in calls is not counted. If it stands out, the part that explains most of it is named. If all ranks spend much of each step in such
a part, nothing stands out, and the part is named for all of them.

Rare causes as findings, in words: who loses how much to what, at which steps, and where it lies in the step.

Evaluations, saves, and batches that take all ranks longer are part of a job. They are told with their price, apart from what is
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.fleet.findings.decline import decline
from windtunnel.fleet.findings.finding import Finding, Verdict, format_ranks
from windtunnel.fleet.findings.history import StepHistory
from windtunnel.fleet.findings.rare import CALLS, NO_CORE, RareCause, StepSpread, known_median, rare_causes
from windtunnel.fleet.findings.slow_links import Transfers, match_transfers, slow_links
from windtunnel.fleet.findings.slow_ranks import (
    WARM_UP,
    WINDOW,
    RankPace,
    cost_of,
    find_outliers,
    pace_of,
    slow_ranks,
    sort_by_cost,
    starved_ranks,
)
from windtunnel.fleet.findings.steps import PARTS, StepTable, roles_of, roles_of_groups, step_table, waited_for
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


RARE_SHARE = 0.6
"""Share of what a finding on most steps costs from which on it is told by the rare cause alone."""
LEAST_COST = 0.01
"""Share of a step that a finding on ranks has to cost to be named: twice as long for a hundredth of a step slows nothing down."""


@dataclass(frozen=True)
class Judgement:
    """The table behind the findings, the paces of the ranks, and the findings, most expensive first."""

    table: StepTable
    pace: RankPace
    transfers: Transfers
    findings: tuple[Finding, ...]
    routine: tuple[Finding, ...]
    """What is part of the job and costs much of its time: evaluations and saves on all ranks."""
    times: StepSpread
    steps_ended: int
    """Both of all steps that are known."""


def judge(
    sections: Sections,
    meshes: Sequence[Mapping[str, Any]] = (),
    past: StepHistory | None = None,
    at_times: Sequence[Finding] | None = None,
) -> Judgement:
    """Finds slow ranks, machines and links, ranks without a core, what some steps lose time to, and the cause of a decline.
    Ranks must be on one clock. `past`: what is known of earlier steps; `at_times`: what some steps lose time to (`rare_of`), where
    that is known already.

    A rank whose work grows is both slower than its peers and the cause of the decline; it is reported once, as the cause.
    """
    world = int(sections.rank.max()) + 1 if len(sections) else 0
    table = step_table(sections, roles_of(meshes, world) or roles_of_groups(sections))
    history = StepHistory() if past is None else past.copy()
    history.add(table, ended=True)
    transfers = match_transfers(sections)
    beside = time_beside(table, waited_for(sections, [int(rank) for rank in table.ranks], len(table.steps)))
    usual = _worth_naming([*slow_ranks(table), *starved_ranks(table), *beside], table)
    at_times, routine = rare_of(history, sections) if at_times is None else (at_times, [])
    found = [*told_once(usual, at_times), *slow_links(transfers)]
    falling = decline(table, transfers, named=[rank for one in found for rank in one.ranks])
    if falling is not None:
        found = [one for one in found if not (one.ranks and set(one.ranks) <= set(falling.ranks))] + [falling]
    by_cost = sort_by_cost(found)
    return Judgement(table, pace_of(table), transfers, tuple(by_cost), tuple(routine), history.times(), history.steps_ended)


def rare_of(history: StepHistory, sections: Sections) -> tuple[list[Finding], list[Finding]]:
    """What some steps lose time to: what is wrong, and what is part of the job. `sections`: of some of the steps."""
    if history.table is None:
        return [], []
    return rare_findings(rare_causes(history.table), history.table, sections)


def told_once(usual: Sequence[Finding], rare: Sequence[Finding]) -> list[Finding]:
    """Findings on most steps and on some, without those that say the same: a rank that is slow at every second step is slow in the
    mean, and one that has got slow is so in many steps."""
    kept = [one for one in rare if one.period or not any(set(one.ranks) <= set(other.ranks) for other in usual)]
    said = [
        other for other in usual
        if not any(one.ranks == other.ranks and one.cost >= RARE_SHARE * other.cost and _same_part(one, other) for one in kept)
    ]  # fmt: skip
    return [*said, *kept]


def _same_part(rare: Finding, usual: Finding) -> bool:
    return bool(rare.ranks) or rare.verdict is usual.verdict


def _worth_naming(found: Sequence[Finding], table: StepTable) -> list[Finding]:
    known = table.step[np.isfinite(table.step)]
    least = LEAST_COST * float(np.median(known)) if len(known) else 0.0
    return [one for one in found if one.cost >= least]


LEAST_STEPS = 8
LEAST_SECONDS = 2e-3
"""Seconds of a step below which a part is shown but not named."""
LEAST_EXCESS = 0.5
"""Share of a rank's excess that a part has to explain to be named for it."""
LEAST_USUAL = 0.4
"""Share of the mean excess that the median one has to have for the excess to be there in most steps."""


@dataclass(frozen=True)
class _Kind:
    """A part of a step that is no computing."""

    verdict: Verdict
    does: str
    """What ranks do in it: "wait {} for …"."""
    share: float
    """Share of a step, without waits for a core, from which on it is named for all ranks."""


_KINDS = {
    "data": _Kind(Verdict.DATA, "wait{s} {time} of a step for the next batch", 0.1),
    "outside": _Kind(
        Verdict.OUTSIDE,
        "spend{s} {time} of a step outside of forward, backward, optimizer, data and calls (Python between them)",
        0.1,
    ),
    "saves": _Kind(Verdict.SAVING, "spend{s} {time} of a step on saving", 0.1),
    "gaps": _Kind(Verdict.LAUNCH_SKEW, "collect{s} garbage for {time} of a step", 0.1),
}


def parts_beside(table: StepTable) -> dict[str, Floats]:
    """Seconds of the parts that are no computing, each [R, S]; 0 where a rank has none in a step that it ended."""
    ended = np.isfinite(table.step)
    named = {"data": table.work[Section.DATA], "saves": table.work[Section.CHECKPOINT], "gaps": table.work[Section.HOST_GAP]}
    parts = {name: np.where(ended, np.nan_to_num(values), np.nan) for name, values in named.items()}
    return {**parts, "outside": np.where(ended, np.nan_to_num(table.outside), np.nan)}


def time_beside(table: StepTable, waited: Mapping[int, float]) -> list[Finding]:
    """Findings on parts of a step that are no computing. `waited`: rank → seconds of a step that the others wait for it."""
    parts = parts_beside(table)
    if len(table.steps) < WARM_UP + LEAST_STEPS:
        return []
    return [*_of_all_ranks(table, parts), *_of_single_ranks(table, parts, waited)]


def _of_single_ranks(table: StepTable, parts: Mapping[str, Floats], waited: Mapping[int, float]) -> list[Finding]:
    usual = {name: _last(values) for name, values in parts.items()}
    busy = table.own + parts["data"] + parts["outside"] + parts["gaps"] + _regular(parts["saves"])
    pace = pace_of(replace(table, own=busy))
    found = []
    for index in find_outliers(pace).tolist():
        equals = np.flatnonzero((table.roles == table.roles[index]) & (np.arange(len(table.ranks)) != index))
        above = {name: values[index] - np.median(values[equals], axis=0) for name, values in usual.items()}
        extra = {name: _mean(values) for name, values in above.items()}
        work = _mean(_last(table.own)[index] - np.median(_last(table.own)[equals], axis=0))
        name = max(extra, key=lambda one: extra[one])
        total = sum(max(one, 0.0) for one in extra.values()) + max(work, 0.0)
        if extra[name] < max(LEAST_EXCESS * total, LEAST_SECONDS):
            continue
        if known_median(above[name]) < LEAST_USUAL * extra[name]:
            continue  # not in most steps: `rare` says in which
        rank, host, kind = int(table.ranks[index]), table.hosts[index], _KINDS[name]
        mine, theirs = _mean(usual[name][index]), _mean(np.median(usual[name][equals], axis=0))
        cost = min(cost_of(busy[[index]], np.delete(busy, index, axis=0)), extra[name])
        where = f"rank {rank}{f' on {host}' if host else ''}"
        doing = kind.does.format(s="s", time=_ms(mine))
        text = f"{where} {doing}, its equals {_ms(theirs)}; without that a step is {_ms(cost)} shorter"
        computes = work < 0.04 * _mean(_last(table.own)[index])
        evidence = [_describe_parts(table, usual, index, equals)]
        if waited.get(rank, 0.0) >= LEAST_SECONDS:
            evidence.append(f"the others wait {_ms(waited[rank])} of a step for it in calls")
        found.append(Finding(
            kind.verdict, (rank,), (host,) if host else (), 1.0 - min(1.0, float(pace.chance[index]) * len(table.ranks)),
            float(pace.excess[index]), cost, -1, text, tuple(evidence),
            ("a slow device: its computing takes as long as that of its equals",) if computes else (),
        ))  # fmt: skip
    return found


def _of_all_ranks(table: StepTable, parts: Mapping[str, Floats]) -> list[Finding]:
    step = _last(table.step)
    fed = step - np.minimum(np.nan_to_num(_last(table.unfed)), 0.9 * step)  # on a busy machine all parts are small beside the waits
    found = []
    for name, kind in _KINDS.items():
        values = _regular(_last(parts[name])) if name == "saves" else _last(parts[name])
        shares = values / np.maximum(fed, 1e-9)
        known = np.isfinite(shares)
        if not known.any(axis=0).sum() >= LEAST_STEPS:
            continue
        typical = np.array([known_median(row) for row in shares])
        low = np.array([np.quantile(row[here], 0.25) if here.any() else 0.0 for row, here in zip(shares, known, strict=True)])
        much = (typical >= kind.share) & (low >= kind.share / 2)
        seconds = float(np.median([_mean(row) for row in values]))
        if much.mean() <= 0.5 or seconds < LEAST_SECONDS:
            continue
        length = known_median(np.array([_mean(row) for row in step]))
        work = known_median(np.array([_mean(row) for row in _last(table.own)]))
        who = "all ranks" if much.all() else format_ranks([int(rank) for rank in table.ranks[much]])
        doing = kind.does.format(s="", time=f"{_ms(seconds)} of {_ms(length)}").replace(" of a step", "")
        found.append(Finding(
            kind.verdict, () if much.all() else tuple(int(rank) for rank in table.ranks[much]), (),
            1.0 - 0.5 ** int(known.any(axis=0).sum()), seconds / length, seconds, -1, f"{who} {doing} in each step",
            (f"{float(np.median(typical)):.0%} of a step; own work is {_ms(work)}",),
            ("one slow rank: most ranks spend that time alike",),
        ))  # fmt: skip
    return found


def _last(values: Floats) -> Floats:
    """The steps that are judged."""
    return values[:, WARM_UP:][:, -WINDOW:]


def _regular(saves: Floats) -> Floats:
    """Saves of ranks that save in most steps; 0 for those that do so now and then."""
    known = np.isfinite(saves)
    often = (known & (saves > 0)).sum(axis=1, keepdims=True) > 0.5 * known.sum(axis=1, keepdims=True)
    return np.where(often, saves, np.where(known, 0.0, np.nan))


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else 0.0


def _describe_parts(table: StepTable, usual: Mapping[str, Floats], index: int, equals: Int64s) -> str:
    """The parts of the rank's step beside those of its equals, in absolute times."""
    every = {"own work": _last(table.own), **usual}
    texts = [
        f"{name} {_ms(_mean(values[index]))} (its equals {_ms(_mean(np.median(values[equals], axis=0)))})"
        for name, values in every.items()
        if _mean(values[index]) >= LEAST_SECONDS / 4
    ]
    return f"of a step of {_ms(_mean(_last(table.step)[index]))}: " + ", ".join(texts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
