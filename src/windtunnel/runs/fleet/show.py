"""A watched run in the terminal and as JSON: what is wrong, the ranks' paces, what the records rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from windtunnel.draw.listing import listing
from windtunnel.draw.terminal import print_sheet
from windtunnel.fleet.findings.hang import HangReport
from windtunnel.fleet.findings.judge import Judgement
from windtunnel.fleet.findings.slow_links import Transfers
from windtunnel.fleet.findings.slow_ranks import FEWEST_EQUALS, FEWEST_STEPS, WARM_UP, RankPace
from windtunnel.fleet.findings.steps import StepTable
from windtunnel.fleet.findings.transfer_share import TransferShare, transfers_of_a_step
from windtunnel.fleet.findings.waits import MOST_WAITS, waits_of_ranks
from windtunnel.fleet.recorded import Recorded
from windtunnel.records.sections import Section, Sections
from windtunnel.runs.fleet.hang_sheet import hang_sheet
from windtunnel.runs.fleet.whole_run import alarm_lines, routine_lines, slow_steps
from windtunnel.sheet import numbers as say

MOST_RANKS = 8
MOST_ALARMS = 20
"""Problems that alarms told, in the last lines of a run."""
UNEXPLAINED = 0.05
"""Share of a step that its rows may leave out without a word."""


def fleet_notes(recorded: Recorded, clocks: str = "") -> list[str]:
    """What the records are of, and what they lack."""
    devices = ", ".join(str(one) for one in recorded.facts.get("devices", ())) or "an unknown device"
    backend = recorded.facts.get("backend")
    timed = (
        "CUDA events on the streams"
        if any(str(one) != "cpu" for one in recorded.facts.get("devices", ()))
        else "the process's clock"
    )
    notes = [
        f"{len(recorded.sections):,} records of {len(recorded.beats)} of {recorded.world} ranks on {devices}; times are of {timed}."
    ]
    if backend:
        notes.append(f"Process groups ran on {backend}.")
    if clocks:
        notes.append(clocks)
    if recorded.facts.get("policy") == "summary":
        notes.append("Recorded without calls (--policy summary): links, and which rank waits for which, are unknown.")
    for one in recorded.facts.get("unseen", ()):
        notes.append(f"Not recorded: {one}.")
    if recorded.lost:
        notes.append(f"{recorded.lost:,} older records are lost: the ring overwrote them before they were read.")
    missing = sorted(set(range(recorded.world)) - set(recorded.beats))
    if missing:
        shown = ", ".join(str(rank) for rank in missing[:8])
        notes.append(f"There are no records of {len(missing)} ranks: {shown}{' …' if len(missing) > 8 else ''}.")
    return notes


NO_STEP = (
    "No rank has ended a step, so there is nothing to compare. A step ends with an optimizer of torch.optim that follows a "
    "backward; a loop without one says so with windtunnel.fleet.watch.step()."
)


def without_findings(table: StepTable, pace: RankPace, transfers: Transfers) -> str:
    """What is said of a run in which nothing was found; also why ranks could not be compared, and what transfers take."""
    share = transfers_of_a_step(transfers, table)
    return " ".join([_why_nothing(table, pace), *([] if share is None else [_transfer_text(share)])])


def _transfer_text(share: TransferShare) -> str:
    call = f"{share.comm.name.lower()} of {say.size(share.bytes)} at {say.rate(share.rate)}"
    text = f"Calls between machines take {say.seconds(share.seconds)} of a step after their last rank has entered ({call})."
    if share.alike:
        text += " All of them join the same machines, so they cannot tell links apart: `windtunnel fleet diagnose pair` tests one."
    return text


def _why_nothing(table: StepTable, pace: RankPace) -> str:
    if not table.steps_ended:
        return NO_STEP
    if np.isfinite(pace.excess).any():
        return "Nothing stands out."
    if table.steps_ended < WARM_UP + FEWEST_STEPS:
        return f"Too short to judge: ranks are compared after {WARM_UP + FEWEST_STEPS} steps, and {table.steps_ended} have ended."
    others = FEWEST_EQUALS - 1
    return f"Nothing stands out, but ranks were not compared: none has {others} others that do the same work."


def _headline(recorded: Recorded, judged: Judgement) -> str:
    """How many ranks, machines and steps, and how long a step takes: the mean, which the clock says, and the spread."""
    times = judged.times
    step = f", a step takes {say.seconds(times.mean)}" if times.count else ""
    if times.count >= FEWEST_STEPS:
        step += f" in the mean (p50 {say.seconds(times.p50)}, p95 {say.seconds(times.p95)}, p99 {say.seconds(times.p99)})"
    hosts, ranks, steps = len({beat.host for beat in recorded.beats.values()}), len(recorded.beats), judged.steps_ended
    return (
        f"{ranks} rank{'s' if ranks != 1 else ''} on {hosts} machine{'s' if hosts != 1 else ''}, "
        f"{steps} step{'s' if steps != 1 else ''}{step}"
    )


def fleet_short(
    recorded: Recorded, judged: Judgement, hang: HangReport | None = None, code: int = 0, alarms: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """The end of a run in a few lines: its size, why it ended if a rank failed, each finding in one line, then what its regular
    work costs and the alarms of the whole run. `code`: the command's exit status."""
    lines = [f"windtunnel fleet: {_headline(recorded, judged)}"]
    lines += [f"  {line[:1].upper()}{line[1:]}" for line in (hang.text.splitlines() if hang is not None else ())]
    lines += [f"  {number}. {one.text[:1].upper()}{one.text[1:]}" for number, one in enumerate(judged.findings, 1)]
    if code:
        lines.append(
            f"  the command ended with exit status {code}{'' if judged.steps_ended else ', before any rank had ended a step'}"
        )
    elif not judged.findings and hang is None:
        lines.append(f"  {without_findings(judged.table, judged.pace, judged.transfers)}")
    lines += [f"  regular: {line}" for line in routine_lines(judged.routine)]
    told = alarm_lines(alarms)
    lines += ["  alarms of the whole run:"] if told else []
    lines += [f"    {line}" for line in told[:MOST_ALARMS]]
    lines += [f"    and {len(told) - MOST_ALARMS} more: `windtunnel fleet show` lists them"] if len(told) > MOST_ALARMS else []
    return lines


def show_fleet(
    recorded: Recorded, judged: Judgement, notes: list[str], console: Console, hang: HangReport | None = None,
    alarms: Sequence[Mapping[str, Any]] = (),
) -> None:  # fmt: skip
    """Why the job does not move, if it does not; the findings; then the slowest ranks and steps, and what a step consists of."""
    console.print(f"[bold]{say.clean(recorded.run) or 'run'}[/]: {_headline(recorded, judged)}", highlight=False)
    console.print()
    if hang is not None:
        console.print(
            ("The job failed" if hang.culprits else "The job was ended") if hang.crash else "The job does not move", style="bold"
        )
        print_sheet(hang_sheet(hang.as_dict()), console)
        console.print()
    if not judged.findings:
        before = hang is not None and judged.steps_ended
        nothing = without_findings(judged.table, judged.pace, judged.transfers)
        console.print("Nothing stood out before." if before else nothing, highlight=False, markup=False)
    for number, one in enumerate(judged.findings, 1):
        console.print(f"{number}. {one.text[:1].upper()}{one.text[1:]}.", markup=False, highlight=False)
        for text in (*one.evidence, *(f"not {text}" for text in one.excluded)):
            console.print(f"     {text}", markup=False, highlight=False)
    for line in routine_lines(judged.routine):
        console.print(f"Regular: {line}.", markup=False, highlight=False)
    console.print()
    _whole_run(judged, alarms, console)
    _parts(judged, console)
    _waits(recorded.sections, judged.table, console)
    _paces(judged, console)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False)


def _whole_run(judged: Judgement, alarms: Sequence[Mapping[str, Any]], console: Console) -> None:
    told = alarm_lines(alarms)
    if told:
        console.print("Alarms of the whole run", style="bold")
        for line in told:
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        console.print()
    slow = slow_steps(judged.times)
    if slow is not None:
        console.print(slow)
        console.print()


def _rows_of_a_step(table: StepTable) -> list[tuple[str, Any]]:
    """Parts of a step by name, each [R, S]; together they are the step, as far as its time is accounted for."""
    rows = [(section.name.lower().replace("_", " "), values) for section, values in table.work.items() if np.isfinite(values).any()]
    return [
        *rows,
        ("outside of sections", table.outside),
        ("blocked in calls", table.blocked),
        ("waiting for a core", table.unfed),
    ]


def _settled_means(table: StepTable, values: Any) -> Any:
    """Mean of each rank over the steps that it ended after the start-up; nothing recorded counts as 0. [R]"""
    ended = np.isfinite(table.step[:, WARM_UP:])
    return np.where(ended, np.nan_to_num(values[:, WARM_UP:]), 0.0).sum(axis=1) / np.maximum(ended.sum(axis=1), 1)


def _parts(judged: Judgement, console: Console) -> None:
    """Where a step goes: the middle rank's seconds by section, and what of it has no row."""
    table = judged.table
    shown = listing(("a step, own time", "left"), ("middle", "right"), ("slowest rank", "right"))
    total = np.zeros(len(table.ranks))
    for name, values in _rows_of_a_step(table):
        if np.isfinite(values[:, WARM_UP:]).any():
            means = _settled_means(table, values)
            total += means
            shown.add_row(name, say.seconds(float(np.median(means))), say.seconds(float(means.max())))
    if not shown.row_count:
        return
    console.print(shown)
    length = float(np.median(_settled_means(table, table.step)))
    missing = length - float(np.median(total))
    if missing > max(UNEXPLAINED * length, 1e-3):
        text = f"{say.seconds(missing)} of each step of {say.seconds(length)} have no row: work that is not recorded."
        console.print(text, style="dim", highlight=False)
    console.print()


def longest_waits(sections: Sections, table: StepTable) -> list[tuple[int, int, float]]:
    """(rank, rank that it waits for in calls, seconds of a step), longest first; only what is worth a word."""
    ranks = [int(rank) for rank in table.ranks]
    waits = waits_of_ranks(sections, ranks, len(table.steps)) if ranks else []
    found = [(rank, int(last), ms * 1e-3) for rank, of in zip(ranks, waits, strict=False) for last, ms in of]
    known = table.step[np.isfinite(table.step)]
    least = max(UNEXPLAINED * float(np.median(known)) if len(known) else 0.0, 1e-3)
    return sorted((one for one in found if one[2] >= least), key=lambda one: -one[2])


def _waits(sections: Sections, table: StepTable, console: Console) -> None:
    for rank, last, seconds in longest_waits(sections, table)[:MOST_WAITS]:
        console.print(f"Rank {rank} waits {say.seconds(seconds)} of a step for rank {last}.", highlight=False)
    if longest_waits(sections, table):
        console.print()


def _paces(judged: Judgement, console: Console) -> None:
    pace = judged.pace
    if not np.isfinite(pace.excess).any():
        needed = f"{WARM_UP + FEWEST_STEPS} steps and {FEWEST_EQUALS} ranks that do the same work"
        console.print(f"Ranks were not compared: that needs {needed}.", style="dim", highlight=False)
        return
    shown = listing(
        ("rank", "right"), ("machine", "left"), ("own work", "right"), ("against its equals", "right"), ("error", "right")
    )
    for index in np.argsort(-np.nan_to_num(pace.excess, nan=-9.0), kind="stable")[:MOST_RANKS]:
        shown.add_row(
            str(int(pace.ranks[index])), say.clean(judged.table.hosts[index]), say.seconds(float(pace.own[index])),
            f"{pace.excess[index]:+.1%}", f"{pace.error[index]:.1%}",
        )  # fmt: skip
    console.print(shown)
    console.print()


def fleet_dict(
    recorded: Recorded, judged: Judgement, hang: HangReport | None = None, alarms: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Plain data: run, ranks with their paces, findings, and why the job does not move or has failed. `step_time_s` and the ranks'
    seconds of a step by section are means without the first steps, which `startup_steps_s` has; `step_times_s` has the spread and
    the slowest steps.
    """
    table, pace = judged.table, judged.pace
    parts = {
        **{Section(one).name.lower(): values for one, values in table.work.items()},
        "own": table.own,
        "blocked": table.blocked,
        "outside": table.outside,
        "no_core": table.unfed,
    }
    means = {name: _settled_means(table, values) for name, values in parts.items() if np.isfinite(values[:, WARM_UP:]).any()}
    start = [float(np.nanmax(column)) for column in table.step[:, :WARM_UP].T if np.isfinite(column).any()]
    ranks = [
        {
            "rank": int(rank),
            "host": table.hosts[index],
            "excess": _finite_or_none(pace.excess[index]),
            "error": _finite_or_none(pace.error[index]),
            "chance": _finite_or_none(pace.chance[index]),
            **{f"{name}_s": float(means[name][index]) if name in means else None for name in parts},
        }
        for index, rank in enumerate(table.ranks)
    ]  # fmt: skip
    waits = [{"rank": one, "for": last, "seconds": seconds} for one, last, seconds in longest_waits(recorded.sections, table)]
    return {
        "run": recorded.run, "world": recorded.world, "steps": judged.steps_ended, "records": len(recorded.sections),
        "lost": recorded.lost, "step_time_s": _finite_or_none(judged.times.mean), "step_times_s": judged.times.as_dict(),
        "startup_steps_s": start, "routine": [one.as_dict() for one in judged.routine], "alarms": [dict(one) for one in alarms],
        "facts": dict(recorded.facts), "waits": waits,
        "findings": [one.as_dict() for one in judged.findings], "hang": None if hang is None else hang.as_dict(), "ranks": ranks,
    }  # fmt: skip


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
