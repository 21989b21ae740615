"""What is said of a watched run in a few lines and as JSON: its size, why nothing was found, what the records rest on.

What is said of a watched run as a whole: its alarms with their times, its regular work with its price.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.fleet.findings.finding import Finding
from windtunnel.fleet.findings.hang import HangReport
from windtunnel.fleet.findings.judge import Judgement
from windtunnel.fleet.findings.slow_links import Transfers, TransferShare, transfers_of_a_step
from windtunnel.fleet.findings.slow_ranks import FEWEST_EQUALS, FEWEST_STEPS, WARM_UP, RankPace
from windtunnel.fleet.findings.steps import StepTable, waits_of_ranks
from windtunnel.fleet.recorded import Recorded
from windtunnel.records.sections import Section, Sections
from windtunnel.sheet import numbers as say
from windtunnel.sheet.sentence import Sentence, join, quote

MOST_ALARMS = 50
"""Problems that alarms told, in the last lines of a run."""
UNEXPLAINED = 0.05
"""Share of a step that its rows may leave out without a word."""


def fleet_notes(recorded: Recorded, clocks: str = "") -> list[Sentence]:
    """What the records are of, and what they lack."""
    devices = tuple(str(device) for device in recorded.facts.get("devices", ()))
    on_gpu = any(device != "cpu" for device in devices)
    template = "{count} records of {ranks} of {world} ranks on {devices}; times are of {clock}."
    notes = [
        Sentence(
            template, count=f"{len(recorded.sections):,}", ranks=len(recorded.beats), world=recorded.world,
            devices=", ".join(devices) or Sentence("an unknown device"),
            clock=Sentence("CUDA events on the streams" if on_gpu else "the process's clock"),
        )
    ]  # fmt: skip
    if backend := recorded.facts.get("backend"):
        notes.append(Sentence("Process groups ran on {backend}.", backend=str(backend)))
    if clocks:
        notes.append(quote(clocks))
    if recorded.facts.get("policy") == "summary":
        notes.append(Sentence("Recorded without calls (--policy summary): links, and which rank waits for which, are unknown."))
    notes += [Sentence("Not recorded: {what}.", what=quote(str(what))) for what in recorded.facts.get("unseen", ())]
    if recorded.lost:
        lost = "{count} older records are lost: the ring overwrote them before they were read."
        notes.append(Sentence(lost, count=f"{recorded.lost:,}"))
    missing = sorted(set(range(recorded.world)) - set(recorded.beats))
    if missing:
        shown = ", ".join(str(rank) for rank in missing[:8]) + (" …" if len(missing) > 8 else "")
        notes.append(Sentence("There are no records of {count} ranks: {ranks}.", count=len(missing), ranks=shown))
    return notes


NO_STEP = (
    "No rank has ended a step, so there is nothing to compare. A step ends with an optimizer of torch.optim that follows a "
    "backward; a loop without one says so with windtunnel.fleet.watch.step()."
)


def without_findings(table: StepTable, pace: RankPace, transfers: Transfers) -> Sentence:
    """What is said of a run in which nothing was found; also why ranks could not be compared, and what transfers take."""
    share = transfers_of_a_step(transfers, table)
    return join([_why_nothing(table, pace), *([] if share is None else _transfer_lines(share))], " ")


def _transfer_lines(share: TransferShare) -> list[Sentence]:
    text = "Calls between machines take {time} of a step after their last rank has entered ({call} of {size} at {rate})."
    lines = [Sentence(text, time=say.seconds(share.seconds), call=share.comm.name.lower(), size=say.size(share.bytes),
                      rate=say.rate(share.rate))]  # fmt: skip
    if share.alike:
        lines.append(Sentence(ALIKE))
    return lines


ALIKE = "All of them join the same machines, so they cannot tell links apart: `windtunnel fleet diagnose pair` tests one."


def _why_nothing(table: StepTable, pace: RankPace) -> Sentence:
    if not table.steps_ended:
        return Sentence(NO_STEP)
    if np.isfinite(pace.excess).any():
        return Sentence("Nothing stands out.")
    if table.steps_ended < WARM_UP + FEWEST_STEPS:
        short = "Too short to judge: ranks are compared after {needed} steps, and {ended} have ended."
        return Sentence(short, needed=WARM_UP + FEWEST_STEPS, ended=table.steps_ended)
    text = "Nothing stands out, but ranks were not compared: none has {count} others that do the same work."
    return Sentence(text, count=FEWEST_EQUALS - 1)


def run_line(recorded: Recorded, judged: Judgement) -> Sentence:
    """How many ranks, machines and steps, and how long a step takes: the mean, which the clock says, and the spread."""
    times, machines = judged.times, len({beat.host for beat in recorded.beats.values()})
    ranks, steps = say.count_words(len(recorded.beats), "rank"), say.count_words(judged.steps_ended, "step")
    parts = [Sentence("{ranks} on {machines}", ranks=ranks, machines=say.count_words(machines, "machine")), steps]
    facts = {name: say.seconds(getattr(times, name)) for name in ("mean", "p50", "p95", "p99")}
    if times.count >= FEWEST_STEPS:
        parts.append(Sentence("a step takes {mean} in the mean (p50 {p50}, p95 {p95}, p99 {p99})", **facts))
    elif times.count:
        parts.append(Sentence("a step takes {mean}", mean=facts["mean"]))
    return join(parts)


def fleet_short(
    recorded: Recorded, judged: Judgement, hang: HangReport | None = None, code: int = 0, alarms: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """The end of a run in a few lines: its size, why it ended if a rank failed, each finding in one line, then what its regular
    work costs and the alarms of the whole run. `code`: the command's exit status."""
    lines = [f"windtunnel fleet: {run_line(recorded, judged)}"]
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


def rows_of_a_step(table: StepTable) -> list[tuple[str, Any]]:
    """Parts of a step by name, each [R, S]; together they are the step, as far as its time is accounted for."""
    rows = [(section.name.lower().replace("_", " "), values) for section, values in table.work.items() if np.isfinite(values).any()]
    return [
        *rows,
        ("outside of sections", table.outside),
        ("blocked in calls", table.blocked),
        ("waiting for a core", table.unfed),
    ]


def settled_means(table: StepTable, values: Any) -> Any:
    """Mean of each rank over the steps that it ended after the start-up; nothing recorded counts as 0. [R]"""
    ended = np.isfinite(table.step[:, WARM_UP:])
    return np.where(ended, np.nan_to_num(values[:, WARM_UP:]), 0.0).sum(axis=1) / np.maximum(ended.sum(axis=1), 1)


def longest_waits(sections: Sections, table: StepTable) -> list[tuple[int, int, float]]:
    """(rank, rank that it waits for in calls, seconds of a step), longest first; only what is worth a word."""
    ranks = [int(rank) for rank in table.ranks]
    waits = waits_of_ranks(sections, ranks, len(table.steps)) if ranks else []
    found = [(rank, int(last), ms * 1e-3) for rank, of in zip(ranks, waits, strict=False) for last, ms in of]
    known = table.step[np.isfinite(table.step)]
    least = max(UNEXPLAINED * float(np.median(known)) if len(known) else 0.0, 1e-3)
    return sorted((one for one in found if one[2] >= least), key=lambda one: -one[2])


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
    means = {name: settled_means(table, values) for name, values in parts.items() if np.isfinite(values[:, WARM_UP:]).any()}
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


MOST_TIMES = 4
"""Times of one alarm that are said; the rest are counted."""


def alarm_lines(alarms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each problem that an alarm told, in the order of its first alarm, with the times from which to which it lasted."""
    told: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for alarm in alarms:
        finding = alarm.get("finding") or {}
        key = (alarm["verdict"], *(tuple(alarm.get(name) or ()) for name in ("ranks", "hosts")), finding.get("part", ""))
        told.setdefault(key, []).append(alarm)
    return [_alarm_line(of_problem) for of_problem in told.values()]


def _alarm_line(alarms: Sequence[Mapping[str, Any]]) -> str:
    spans: list[list[float]] = []
    for alarm in alarms:
        if not alarm.get("cleared"):
            spans.append([float(alarm["seconds"])])
        elif spans:
            spans[-1].append(float(alarm["seconds"]))
    shown = [" to ".join(dict.fromkeys(_clock(moment) for moment in (span[0], span[-1]))) for span in spans[:MOST_TIMES]]
    more = f" and {len(spans) - MOST_TIMES} times more" if len(spans) > MOST_TIMES else ""
    raised = [alarm for alarm in alarms if not alarm.get("cleared")] or list(alarms)
    text = "; ".join(str(raised[-1]["text"]).splitlines())
    return f"{', '.join(shown)}{more} {raised[-1]['verdict']}: {text}".strip()


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def routine_lines(routine: Sequence[Finding]) -> list[str]:
    """Evaluations and saves of all ranks, with their price."""
    return [f"{one.text[:1].upper()}{one.text[1:]}" for one in routine]
