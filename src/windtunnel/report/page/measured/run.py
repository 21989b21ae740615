"""The page of a measured run: the history of its steps with the points where it changed, where each rank's time goes, calls,
waiting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from windtunnel.base.arrays import Floats
from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import BLUE, GREY, ORANGE, Words, key_line, paragraphs
from windtunnel.draw.page.frame import Cell
from windtunnel.report.page.measured.broken import broken_part
from windtunnel.report.page.measured.colours import PARTS
from windtunnel.report.page.plots import BarPart, BarRow, PlotAxis, PlotLine, draw_plot, stacked_bars
from windtunnel.report.page.prediction import section
from windtunnel.report.words.measured.seconds import seconds, signed_seconds
from windtunnel.runs.changes import StepChange, changes_of
from windtunnel.runs.report import RankMean, RunReport, rank_means
from windtunnel.sheet import numbers as say

MOST_RANKS, MOST_ROWS = 48, 400
"""Ranks in the picture, and rows of a table, at most."""

MOMENTS = 600
"""Steps of the history that are drawn: of more, the median of neighbours."""


def write_page(report: RunReport, path: str | Path, command: str = "", broken: Sequence[str] = ()) -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(report, command, broken), path)


def page(report: RunReport, command: str = "", broken: Sequence[str] = ()) -> str:
    """The page's text. `broken`: what could not be read."""
    means = rank_means(report.steps)
    numbers, history = _history_of(report)
    changes = changes_of(history)
    sections = broken_part(broken)
    if len(history) > 2:
        sections.append(section("Steps over the run", _history(numbers, history, changes)))
    if means:
        sections.append(section("Where the time of a step goes, rank by rank", _ranks(means)))
    if report.classes:
        sections.append(section("Kernel classes, a mean step of a mean rank", _classes(report)))
    if report.calls:
        sections.append(section("Communication calls", _calls(report)))
    if report.waits.calls:
        sections.append(section("Which rank waits for which", _waits(report)))
    notes = [f"{name}: {value}" for name, value in report.run.facts.items()]
    if report.notes or notes:
        sections.append(section("Notes", frame.part("reasons", notes, report.notes)))
    source = Path(report.run.source).name or "a run"
    ranks = len({one.rank for one in report.steps})
    whose = f" of {ranks:,} rank{'s' * (ranks > 1)}" if ranks else ""
    subtitle = [f"{len(history):,} step{'s' * (len(history) != 1)}{whose}"]
    return frame.page(
        f"{say.clean(source)}: a measured run", subtitle, _cards(means, history, changes), Markup().join(sections), None, command
    )


def _history_of(report: RunReport) -> tuple[list[int], Floats]:
    """Numbers of steps, and the seconds of each: the longest of its ranks."""
    longest: dict[int, float] = {}
    if report.steps:
        pairs = [(one.step, one.seconds) for one in report.steps]
    else:
        steps = report.run.steps
        pairs = list(zip(steps.step.tolist(), steps.seconds.tolist(), strict=True))
    for step, took in pairs:
        if np.isfinite(took):
            longest[int(step)] = max(longest.get(int(step), 0.0), float(took))
    order = sorted(longest)
    return order, np.array([longest[step] for step in order])


def _cards(means: tuple[RankMean, ...], history: Floats, changes: tuple[StepChange, ...]) -> list[tuple[str, str, str]]:
    if not len(history):
        return [("steps", "none", "bad")]
    middle = float(np.median(history))
    spread = 1.4826 * float(np.median(np.abs(history - middle)))
    cards = [
        ("a step, median", f"{seconds(middle)} ±{seconds(spread)}", ""),
        ("the longest step", seconds(float(history.max())), "bad" if history.max() > 1.5 * middle else ""),
        (
            "changes over the run",
            f"{len(changes)}" if changes else "none",
            "bad" if any(one.ratio > 1.0 for one in changes) else "",
        ),
    ]
    if means:
        step = float(np.mean([one.seconds for one in means])) or 1.0
        for name in ("compute", "exposed"):
            cards.append((PARTS[name][0], say.percent(float(np.mean([getattr(one, name) for one in means])) / step), ""))
        idle = float(np.mean([one.host + one.sync + one.queue for one in means]))
        cards.append(("idle", say.percent(idle / step), "bad" if idle > 0.2 * step else ""))
    return cards


def _history(numbers: list[int], history: Floats, changes: tuple[StepChange, ...]) -> Markup:
    """Seconds of each step, the level between changes, and a line in words for each change."""
    each = max(1, -(-len(history) // MOMENTS))
    points = [
        (float(numbers[at]), float(np.median(history[at : at + each]))) for at in range(0, len(history), each)
    ]  # fmt: skip
    edges = [0, *(one.at for one in changes), len(history)]
    levels = []
    for begin, end in zip(edges, edges[1:], strict=False):
        level = float(np.median(history[begin:end]))
        levels += [(float(numbers[begin]), level), (float(numbers[end - 1]), level)]
    lines = [PlotLine("seconds of a step", points, BLUE), PlotLine("level", levels, ORANGE, wide=3.0)]
    for one in changes:
        at = float(numbers[one.at])
        lines.append(PlotLine(f"change at step {at:,.0f}", [(at, 0.0), (at, float(history.max()))], "var(--ink)", "4 4", 1.0))
    picture = draw_plot(
        (), lines, PlotAxis("step", lambda v: f"{v:,.0f}"), PlotAxis("time of a step", seconds, least=0.0), "steps", 260.0
    )
    about = f"medians of {each} steps" if each > 1 else ""
    told = [
        f"From step {numbers[one.at]:,} on a step takes {seconds(one.after)} instead of {seconds(one.before)} "
        f"({signed_seconds(one.after - one.before)}, {one.ratio - 1.0:+.1%})."
        for one in changes
    ]
    told = told or ["The level of the steps does not change over the run."]
    rows: list[list[Cell]] = [
        [(f"{number:,}", float(number)), (seconds(took), took)] for number, took in zip(numbers, history.tolist(), strict=True)
    ][:MOST_ROWS]  # fmt: skip
    table = frame.part("table", "steps", [("step", True), ("time", True)], rows)
    left = f", the first {MOST_ROWS:,} of {len(history):,} steps" if len(history) > MOST_ROWS else ""
    folded = Markup('<details style="margin-top:10px"><summary>As a table{}</summary>{}</details>').format(left, table)
    key = key_line([("time of a step, its longest rank", BLUE), ("level between changes (dashed)", ORANGE)], about)
    return picture + key + paragraphs(told) + folded


def _ranks(means: tuple[RankMean, ...]) -> Markup:
    """The mean step of each rank as a bar; where there are many, those that take longest."""
    shown = means if len(means) <= MOST_RANKS else tuple(sorted(means, key=lambda one: -one.seconds)[:MOST_RANKS])
    rows = [
        BarRow(
            f"rank {one.rank}", [BarPart(label, getattr(one, name), colour) for name, (label, colour) in PARTS.items()],
            f"{seconds(one.seconds)}, {one.steps:,} step{'s' * (one.steps != 1)}",
        )
        for one in shown
    ]  # fmt: skip
    left = f"the {MOST_RANKS} slowest of {len(means):,} ranks" if len(means) > MOST_RANKS else ""
    used = [entry for name, entry in PARTS.items() if any(getattr(one, name) > 0.0 for one in shown)]
    key = key_line(used, left)
    heads = [
        ("rank", True),
        ("steps", True),
        ("step", True),
        *((label, True) for label, _ in PARTS.values()),
        ("hidden communication", True),
    ]
    cells: list[list[Cell]] = [
        [(str(one.rank), float(one.rank)), (f"{one.steps:,}", float(one.steps)), _time(one.seconds),
         *(_time(getattr(one, name)) for name in (*PARTS, "hidden"))]
        for one in means[:MOST_ROWS]
    ]  # fmt: skip
    return stacked_bars(rows, seconds, "the mean step of each rank") + key + frame.part("table", "ranks", heads, cells)


def _time(value: float) -> Cell:
    return (seconds(value), value) if value == value else ("-", -1.0)


def _classes(report: RunReport) -> Markup:
    total = sum(report.classes.values()) or 1.0
    most = max(report.classes.values(), default=1.0) or 1.0
    bars = [
        {"label": name, "value": seconds(each), "share": say.percent(each / total), "width": 100.0 * each / most, "colour": BLUE,
         "title": f"{name}: {seconds(each)} a step"}
        for name, each in report.classes.items()
    ]  # fmt: skip
    return frame.part("bars", bars)


def _calls(report: RunReport) -> Markup:
    rows: list[list[Cell]] = [
        [(row.comm, None), (row.group or "-", None), (str(row.size or "-"), float(row.size)), _cell_of(row.bytes, say.size),
         (f"{row.count:,}", float(row.count)), _time(row.seconds), _time(row.median),
         _cell_of(row.bus, lambda v: f"{v / 1e9:,.2f} GB/s")]
        for row in report.calls[:MOST_ROWS]
    ]  # fmt: skip
    heads = [
        ("call", False),
        ("group", False),
        ("ranks", True),
        ("bytes", True),
        ("count", True),
        ("total", True),
        ("median", True),
        ("bus", True),
    ]
    return frame.part("table", "calls", heads, rows)


def _cell_of(value: float, words: Words) -> Cell:
    return (words(value), value) if value == value else ("-", -1.0)


def _waits(report: RunReport) -> Markup:
    """For each rank how long others waited for it, and how long it waited."""
    clocks, waits = report.clocks, sorted(report.waits.ranks, key=lambda one: -one.kept_waiting)
    line = (
        f"{clocks.calls:,} calls matched across ranks; their ends agree within {seconds(clocks.residual_median)} (median), "
        f"{seconds(clocks.residual_p95)} (95 %). What others waited for a rank is the sum over them, over the whole trace."
    )
    rows = [
        BarRow(
            f"rank {one.rank}", [BarPart("others waited for it", one.kept_waiting, ORANGE), BarPart("it waited", one.waited, GREY)],
            f"last in {one.last:,} calls",
        )
        for one in waits[:MOST_RANKS]
    ]  # fmt: skip
    cells: list[list[Cell]] = [
        [(str(one.rank), float(one.rank)), (f"{one.last:,}", float(one.last)), _time(one.kept_waiting), _time(one.waited),
         (", ".join(f"{name} {seconds(took)}" for name, took in list(one.calls.items())[:3]), None)]
        for one in waits[:MOST_ROWS]
    ]  # fmt: skip
    heads = [("rank", True), ("last", True), ("others waited for it", True), ("it waited", True), ("in", False)]
    key = key_line([("others waited for it", ORANGE), ("it waited for others", GREY)])
    return paragraphs([line]) + stacked_bars(rows, seconds, "waiting of ranks") + key + frame.part("table", "waits", heads, cells)
