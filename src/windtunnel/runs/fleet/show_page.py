"""The page of a watched run: what is wrong, the heat map of ranks and time, and the mesh in which a rank can be picked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.frame import Cell, section
from windtunnel.fleet.findings.finding import Finding
from windtunnel.fleet.findings.hang import HangReport
from windtunnel.fleet.findings.judge import Judgement
from windtunnel.fleet.findings.slow_ranks import RankPace
from windtunnel.fleet.findings.step_times import StepSpread
from windtunnel.fleet.findings.steps import StepTable
from windtunnel.fleet.findings.waits import waits_of_ranks
from windtunnel.records.sections import Sections
from windtunnel.runs.fleet.show import without_findings
from windtunnel.runs.fleet.view import bin_steps, flows_of, heat_layers, mesh_of
from windtunnel.runs.fleet.whole_run import routine_lines
from windtunnel.sheet import numbers as say

MOST_ROWS = 400
MOST_ALARMS = 50


def fleet_page(
    name: str, sections: Sections, judged: Judgement, hang: HangReport | None,
    meshes: Sequence[Mapping[str, Any]] = (), notes: Sequence[str] = (), command: str = "", *,
    alarms: Sequence[Mapping[str, Any]] = (), reload: float = 0.0,
) -> str:  # fmt: skip
    """The page's text. `notes`: what the records are of: backend, clocks, what was dropped. `alarms`: `Alarm.as_dict`s of a
    monitor; `reload`: seconds after which the page loads itself again, 0 never."""
    table, pace, findings, times = judged.table, judged.pace, judged.findings, judged.times
    ranks = [int(rank) for rank in table.ranks]
    steps = len(table.steps)  # with the last one, which may not have ended
    hosts = sorted(set(table.hosts))
    named = sorted({rank for one in findings for rank in one.ranks} | set(hang.culprits if hang else ()))
    data = {
        "ranks": ranks, "hosts": hosts, "host": [hosts.index(host) for host in table.hosts], "steps": bin_steps(table),
        "layers": heat_layers(table), "mesh": mesh_of(meshes, ranks, sections), "waits": waits_of_ranks(sections, ranks, steps),
        "groups": flows_of(sections, steps), "named": named,
        "hang": {} if hang is None else {str(rank): {str(o): call for o, call in on.items()} for rank, on in hang.waits.items()},
        "excess": [None if not np.isfinite(one) else round(float(one), 4) for one in pace.excess],
    }  # fmt: skip
    nothing = "" if findings or hang else without_findings(table, pace, judged.transfers)
    parts = [section("What is wrong", _findings(findings, hang, nothing))]
    if judged.routine:
        lines = Markup().join(Markup("<li>{}</li>").format(line) for line in routine_lines(judged.routine))
        parts.append(section("Regular work and its price", Markup('<ul class="notes">{}</ul>').format(lines)))
    if times.slowest:
        parts.append(section("Slowest steps", _slow_steps(times)))
    if alarms:
        parts.append(section("Alarms", _alarms(alarms)))
    if steps and data["layers"]:
        parts.append(section("Ranks over time: how much longer each takes than its equals", frame.part("heat")))
        parts.append(section("Ranks in the mesh: pick one", frame.part("mesh")))
        parts.append(section("Ranks in figures", _ranks(table, pace)))
    if notes:
        parts.append(section("What this rests on", Markup().join(Markup("<p>{}</p>").format(note) for note in notes)))
    wrong = len(findings) + (hang is not None)
    cards = [
        (_many("rank", len(ranks)), f"{len(ranks):,}", ""),
        (_many("machine", len(hosts)), f"{len(hosts):,}", ""),
        (_many("step", judged.steps_ended), f"{judged.steps_ended:,}", ""),
        ("a step, mean", say.seconds(times.mean) if times.count else "unknown", ""),
        ("p50", say.seconds(times.p50) if times.count else "unknown", ""),
        ("p95", say.seconds(times.p95) if times.count else "unknown", ""),
        ("p99", say.seconds(times.p99) if times.count else "unknown", ""),
        (_many("finding", wrong), f"{wrong}", "bad" if wrong else "good"),
    ]
    state = f"A job that runs, as of {time.strftime('%Y-%m-%d %H:%M:%S')}" if reload else "A watched run"
    return frame.page(name, (state,), cards, Markup().join(parts), data, command, "fleet.js", reload)


def write_fleet_page(text: str, path: str | Path) -> None:
    """Writes the page; FileError if the path cannot be written."""
    frame.write_page(text, path)


def _many(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _alarms(alarms: Sequence[Mapping[str, Any]]) -> Markup:
    """The newest first, as the monitor told them."""
    rows = []
    for one in list(alarms)[: -MOST_ALARMS - 1 : -1]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(one["seconds"])))
        over = Markup('<span class="soft">over:</span> ') if one.get("cleared") else ""
        told = Markup("<br>").join(str(one["text"]).splitlines())
        rows.append(Markup('<li><span class="soft">{}</span> <b>{}</b> {}{}</li>').format(when, one["verdict"], over, told))
    return Markup('<ul class="notes">{}</ul>').format(Markup().join(rows))


def _findings(findings: Sequence[Finding], hang: HangReport | None, otherwise: str) -> Markup:
    if not findings and hang is None:
        return Markup("<p>{}</p>").format(otherwise)
    lines = []
    if hang is not None:
        told = Markup("<br>").join(hang.text.splitlines())
        head = ("The job failed." if hang.culprits else "The job was ended.") if hang.crash else "The job does not move."
        lines.append(Markup("<li><b>{}</b> {}</li>").format(head, told))
    for one in findings:
        sure = "less than 1 in 10,000" if one.confidence > 0.9999 else f"about {1 - one.confidence:.2g}"
        rest = [*one.evidence, *(f"not {text}" for text in one.excluded)]
        notes = Markup().join(Markup("<li>{}</li>").format(text) for text in rest)
        item = Markup('<li><b>{}</b> <span class="soft">(chance in a healthy job: {})</span><ul class="notes">{}</ul></li>')
        lines.append(item.format(one.text[:1].upper() + one.text[1:], sure, notes))
    return Markup('<ol class="reasons">{}</ol>').format(Markup().join(lines))


def _slow_steps(times: StepSpread) -> Markup:
    heads = [("step", True), ("took", True), ("rank", True), ("lost to", False), ("more than usual", True)]
    rows: list[list[Cell]] = [
        [
            (str(one.step), float(one.step)), (say.seconds(one.seconds), one.seconds),
            (str(one.rank) if one.rank >= 0 else "all", float(one.rank)), (one.part, None), (say.seconds(one.lost), one.lost),
        ]
        for one in times.slowest
    ]  # fmt: skip
    return frame.part("table", "slow-steps", heads, rows)


def _ranks(table: StepTable, pace: RankPace) -> Markup:
    heads = [("rank", True), ("machine", False), ("own work", True), ("excess", True), ("error", True), ("blocked in calls", True)]
    order = np.argsort(np.where(np.isfinite(pace.excess), -pace.excess, np.inf), kind="stable")[:MOST_ROWS]
    rows: list[list[Cell]] = []
    for index in order:
        blocked = table.blocked[index]
        held = float(np.nanmean(blocked)) if np.isfinite(blocked).any() else float("nan")
        excess, error, own = float(pace.excess[index]), float(pace.error[index]), float(pace.own[index])
        rows.append([
            (str(int(table.ranks[index])), float(table.ranks[index])), (table.hosts[index] or "unknown", None),
            (say.seconds(own) if own == own else "unknown", own if own == own else -1.0),
            (f"{excess:+.1%}" if excess == excess else "few equals", excess if excess == excess else -9.0),
            (f"{error:.1%}" if error == error else "", error if error == error else -9.0),
            (say.seconds(held) if held == held else "none", held if held == held else -1.0),
        ])  # fmt: skip
    return frame.part("table", "ranks", heads, rows)
