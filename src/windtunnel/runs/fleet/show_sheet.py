"""What a watched run shows: what is wrong, alarms, slowest steps, what a step consists of, its ranks, what all of it rests on. What
a job that does not move shows: the culprits, who waits for whom, and the culprits' stacks where there are any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.fleet.api import JudgedRun
from windtunnel.fleet.findings.finding import Finding
from windtunnel.fleet.findings.hang import HangReport
from windtunnel.fleet.findings.judge import Judgement
from windtunnel.fleet.findings.rare import CALLS, StepSpread
from windtunnel.fleet.findings.slow_ranks import FEWEST_EQUALS, FEWEST_STEPS, WARM_UP
from windtunnel.fleet.findings.steps import MOST_WAITS, waits_of_ranks
from windtunnel.runs.fleet.show import (
    UNEXPLAINED,
    alarm_lines,
    fleet_notes,
    longest_waits,
    routine_lines,
    rows_of_a_step,
    run_line,
    settled_means,
    without_findings,
)
from windtunnel.runs.fleet.view import bin_steps, flows_of, heat_layers, mesh_of
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Cell, Column, Figure, Lines, Picture, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote

MOST_LINES = 12


def hang_sheet(facts: Mapping[str, Any]) -> Sheet:
    """What `fleet hang` shows. `facts`: as `windtunnel.fleet.find_hang` returns them."""
    verdict = tuple(quote(f"{line[:1].upper()}{line[1:]}.") for line in str(facts["text"]).splitlines())
    calls = Counter((other, call) for on in facts["waits"].values() for other, call in on.items()).most_common()
    waits: list[str] = ["", "Ranks that others wait for"] if calls else []
    for (other, call), count in calls[:MOST_LINES]:
        ranks = "rank" if count == 1 else "ranks"
        waits.append(Sentence(f"  rank {{other}}: {{count}} {ranks} in {{call}}", other=other, count=count, call=call))
    stacks: list[str] = []
    for rank, stack in facts.get("stacks", {}).items():
        stacks += ["", Sentence("Stack of rank {rank}", rank=rank), quote(str(stack))]
    rows = []
    for (other, call), count in calls:
        rows.append((Cell(str(other), float(other)), Cell(f"{count:,}", float(count)), Cell(str(call))))
    columns = (Column("rank", True), Column("ranks that wait for it", True), Column("in"))
    waiting = len(facts["waits"])
    return Sheet(
        "Who holds the job up", "", (Figure("waits.ranks", "ranks that wait", waiting, "", None, f"{waiting:,}"),),
        (
            Section("", (Lines((*verdict, *waits, *stacks), brief=True),)),
            Section("The verdict", (Lines(verdict, detail=True),)),
            Section("Ranks that others wait for", (Table("waits", columns, tuple(rows), detail=True),) if rows else ()),
            *(
                Section(Sentence("Stack of rank {rank}", rank=rank), (Lines((quote(str(stack)),), mood="code", detail=True),))
                for rank, stack in facts.get("stacks", {}).items()
            ),
        ),
        titled=True,
    )  # fmt: skip


MOST_ROWS, MOST_RANKS = 400, 8
"""Ranks on pages and in the terminal."""
MOST_ALARMS = 50
"""Newest alarms on pages; the terminal has a line for each problem."""


def watched_sheet(found: JudgedRun, name: str = "", lost: Sequence[str] = (), now: float = 0.0, pictures: bool = True) -> Sheet:
    """What `fleet show` shows. `name`: of a run that has none itself; `lost`: on lost checkpoints; `now`: seconds since 1970 of a
    page that is written anew while the job runs; `pictures`: whether anything draws the maps of ranks."""
    recorded, judged, hang = found.recorded, found.judgement, found.hang
    title = quote(say.clean(recorded.run) or name or "run")
    notes = (*map(quote, lost), *fleet_notes(recorded, found.clocks))
    routine = routine_lines(judged.routine)
    return Sheet(
        title, Sentence("{run}: {line}", run=title, line=run_line(recorded, judged)), _figures(found),
        (
            *([_hang(hang)] if hang is not None else []),
            Section("What is wrong", _findings(judged, hang)),
            Section("Regular work and its price", (Lines(tuple(map(quote, routine)), listed=True),) if routine else ()),
            Section("Alarms of the whole run", _alarms(found.alarms)),
            Section("Slowest steps", _slow_steps(judged.times)),
            Section("A step, own time", _parts(judged)),
            Section("Who waits for whom", _waits(found)),
            *(_maps(found) if pictures else ()),
            Section("Ranks in figures", _ranks(judged)),
            Section("What this rests on", (Lines(notes, mood="soft"),)),
        ),
        (Sentence("A job that runs, as of {moment}", moment=say.moment(now)) if now else "A watched run",), titled=True,
    )  # fmt: skip


def _figures(found: JudgedRun) -> tuple[Figure, ...]:
    judged, times = found.judgement, found.judgement.times
    counts = {"rank": len(judged.table.ranks), "machine": len(set(judged.table.hosts)), "step": judged.steps_ended}
    keys = {"rank": "ranks.count", "machine": "ranks.machines", "step": "steps"}
    wrong = len(judged.findings) + (found.hang is not None)
    lengths = {"step_time_s": ("a step, mean", times.mean), **{f"step_times_s.{name}": (name, getattr(times, name)) for name in
               ("p50", "p95", "p99")}}  # fmt: skip
    return (
        *(Figure(keys[noun], noun if count == 1 else f"{noun}s", count, "", None, f"{count:,}") for noun, count in counts.items()),
        *(Figure(key, label, value if times.count else None, "s", None, "" if times.count else Sentence("unknown"))
          for key, (label, value) in lengths.items()),
        Figure("findings.count", "finding" if wrong == 1 else "findings", wrong, "", None, f"{wrong}", "bad" if wrong else "good"),
    )  # fmt: skip


def _hang(hang: HangReport) -> Section:
    """Why the job does not move, or how it failed."""
    title = ("The job failed" if hang.culprits else "The job was ended") if hang.crash else "The job does not move"
    return Section(title, tuple(block for section in hang_sheet(hang.as_dict()).sections for block in section.blocks))


def _findings(judged: Judgement, hang: HangReport | None) -> tuple[Block, ...]:
    if not judged.findings:
        before = hang is not None and judged.steps_ended
        nothing = without_findings(judged.table, judged.pace, judged.transfers)
        return (Lines((Sentence("Nothing stood out before.") if before else nothing,)),)
    return tuple(block for number, finding in enumerate(judged.findings, 1) for block in _finding(number, finding))


def _finding(number: int, finding: Finding) -> tuple[Block, ...]:
    """What it is, how sure that is, and what shows it."""
    sure = (
        Sentence("less than 1 in 10,000")
        if finding.confidence > 0.9999
        else Sentence("about {share}", share=f"{1 - finding.confidence:.2g}")
    )
    evidence = (*map(quote, finding.evidence), *(Sentence("not {text}", text=quote(text)) for text in finding.excluded))
    return (
        Lines((Sentence("{number}. {text}.", number=number, text=quote(finding.text[:1].upper() + finding.text[1:])),)),
        Lines((Sentence("chance in a healthy job: {chance}", chance=sure),), mood="soft", detail=True),
        *([Lines(evidence, listed=True)] if evidence else []),
    )


def _alarms(alarms: Sequence[dict[str, Any]]) -> tuple[Block, ...]:
    """A line for each problem; on pages the newest alarms, as the monitor told them."""
    if not alarms:
        return ()
    told = []
    for alarm in list(alarms)[: -MOST_ALARMS - 1 : -1]:
        facts = {
            "moment": say.moment(float(alarm["seconds"])),
            "verdict": str(alarm["verdict"]),
            "text": quote("; ".join(str(alarm["text"]).splitlines())),
        }
        told.append(Sentence("{moment} {verdict}, over: {text}" if alarm.get("cleared") else "{moment} {verdict}: {text}", **facts))
    problems = tuple(quote(f"  {line}") for line in alarm_lines(alarms))
    return (Lines(problems, mood="code", brief=True), Lines(tuple(told), listed=True, detail=True))


def _slow_steps(times: StepSpread) -> tuple[Block, ...]:
    """The slowest steps with the rank and the part that they lost time to."""
    columns = (Column("step", True), Column("took", True), Column("rank", True), Column("lost to"), Column("more than usual", True))
    rows = tuple(
        (Cell(str(one.step), one.step), Cell(say.seconds(one.seconds), one.seconds),
         Cell(str(one.rank), one.rank) if one.rank >= 0 else Cell(Sentence("all")),
         Cell(Sentence("calls that all entered") if one.part == CALLS else one.part), Cell(say.seconds(one.lost), one.lost))
        for one in times.slowest
    )  # fmt: skip
    return (Table("slow-steps", columns, rows),) if rows else ()


def _parts(judged: Judgement) -> tuple[Block, ...]:
    """Where a step goes: the middle rank's seconds by section, and what of it has no row."""
    table, rows = judged.table, []
    total = np.zeros(len(table.ranks))
    for name, values in rows_of_a_step(table):
        if np.isfinite(values[:, WARM_UP:]).any():
            means = settled_means(table, values)
            total += means
            figures = (float(np.median(means)), float(means.max()))
            rows.append((Cell(Sentence(name)), *(Cell(say.seconds(figure), figure) for figure in figures)))
    if not rows:
        return ()
    shown = Table("step_parts", (Column("part"), Column("middle", True), Column("slowest rank", True)), tuple(rows))
    length = float(np.median(settled_means(table, table.step)))
    missing = length - float(np.median(total))
    if missing <= max(UNEXPLAINED * length, 1e-3):
        return (shown,)
    text = Sentence("{missing} of each step of {length} have no row: work that is not recorded.", missing=say.seconds(missing),
                    length=say.seconds(length))  # fmt: skip
    return (shown, Lines((text,), mood="soft"))


def _waits(found: JudgedRun) -> tuple[Block, ...]:
    lines = tuple(
        Sentence("Rank {rank} waits {time} of a step for rank {last}.", rank=rank, time=say.seconds(seconds), last=last)
        for rank, last, seconds in longest_waits(found.recorded.sections, found.judgement.table)[:MOST_WAITS]
    )
    return (Lines(lines),) if lines else ()


def _maps(found: JudgedRun) -> tuple[Section, ...]:
    """Ranks over time, and the mesh in which a rank can be picked."""
    judged, hang, sections = found.judgement, found.hang, found.recorded.sections
    table = judged.table
    layers = heat_layers(table)
    if not len(table.steps) or not layers:
        return ()
    ranks = [int(rank) for rank in table.ranks]
    steps = len(table.steps)  # with the last one, which may not have ended
    hosts = sorted(set(table.hosts))
    named = sorted({rank for one in judged.findings for rank in one.ranks} | set(hang.culprits if hang else ()))
    data = {
        "ranks": ranks, "hosts": hosts, "host": [hosts.index(host) for host in table.hosts], "steps": bin_steps(table),
        "layers": layers, "mesh": mesh_of(found.recorded.meshes, ranks, sections), "waits": waits_of_ranks(sections, ranks, steps),
        "groups": flows_of(sections, steps), "named": named,
        "hang": {} if hang is None else {str(rank): {str(o): call for o, call in on.items()} for rank, on in hang.waits.items()},
        "excess": [None if not np.isfinite(one) else round(float(one), 4) for one in judged.pace.excess],
    }  # fmt: skip
    return (
        Section("Ranks over time: how much longer each takes than its equals", (Picture("rank_heat", data, detail=True),)),
        Section("Ranks in the mesh: pick one", (Picture("rank_mesh", {}, detail=True),)),
    )


def _ranks(judged: Judgement) -> tuple[Block, ...]:
    """The ranks, the slowest against its equals first."""
    table, pace, rows, unknown = judged.table, judged.pace, [], Sentence("unknown")
    order = np.argsort(np.where(np.isfinite(pace.excess), -pace.excess, np.inf), kind="stable")[:MOST_ROWS]
    for index in order:
        blocked = table.blocked[index]
        held = float(np.nanmean(blocked)) if np.isfinite(blocked).any() else float("nan")
        excess, error, own = float(pace.excess[index]), float(pace.error[index]), float(pace.own[index])
        rows.append((
            Cell(str(int(table.ranks[index])), float(table.ranks[index])), Cell(say.clean(table.hosts[index]) or unknown),
            Cell(say.seconds(own), own) if own == own else Cell(unknown),
            Cell(f"{excess:+.1%}", excess) if excess == excess else Cell(Sentence("few equals")),
            Cell(f"{error:.1%}", error) if error == error else Cell(""),
            Cell(say.seconds(held), held) if held == held else Cell(Sentence("none")),
        ))  # fmt: skip
    columns = (
        Column("rank", True), Column("machine"), Column("own work", True), Column("against its equals", True),
        Column("error", True), Column("blocked in calls", True, left_out="terminal"),
    )  # fmt: skip
    compared = bool(np.isfinite(pace.excess).any())
    shown = (Table("ranks", columns, tuple(rows), most=MOST_RANKS, detail=not compared),) if rows else ()
    if compared:
        return shown
    needed = Sentence("Ranks were not compared: that needs {steps} steps and {ranks} ranks that do the same work.",
                      steps=WARM_UP + FEWEST_STEPS, ranks=FEWEST_EQUALS)  # fmt: skip
    return (Lines((needed,), mood="soft"), *shown)
