"""The page of designs: the front of what they cost and what they do, the best ones with their plans, what each field is worth."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import BLUE, GREEN, GREY, key_line, paragraphs, say_number
from windtunnel.draw.page.frame import Cell
from windtunnel.report.page.job_lines import describe_job, fields_part
from windtunnel.report.page.plots import PlotAxis, PlotLine, PlotPoint, draw_plot
from windtunnel.report.page.prediction import section
from windtunnel.report.words.design import PLAN_FIELDS, tried_lines
from windtunnel.report.words.search import number_of, plan_words
from windtunnel.search.design import Design, DesignField, DesignResult
from windtunnel.search.objective import Objective
from windtunnel.sheet import numbers as say
from windtunnel.spec import names

MOST_ROWS, MOST_POINTS = 200, 1200
"""Rows of the table and points of a picture at most, the best first."""

Value = Callable[[Design], float | None]


def write_page(result: DesignResult, path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(result, command), path)


def page(result: DesignResult, command: str = "") -> str:
    """The page's text."""
    best = result.designs[0]
    sections = [section(title, picture) for title, picture in _pictures(result)]
    sections.append(section("Designs", _table(result)))
    if result.importance:
        title = f"What sets designs apart that are good in {result.objectives[0].name}"
        sections.append(section(title, _importance(result)))
    sections.append(section("How sure this is", paragraphs(tried_lines(result))))
    sections.append(section("To predict the best design in full", Markup("<pre><code>{}</code></pre>").format(command_of(best))))
    sections.append(section("The best design's job", fields_part(best.job)))
    return frame.page(
        f"Designs for {say.clean(best.job.name)}", describe_job(best.job), _cards(result), Markup().join(sections), None, command
    )  # fmt: skip


def _cards(result: DesignResult) -> list[tuple[str, str, str]]:
    best = result.designs[0]
    cards = [
        (f"{each.unit}, {'of the first' if len(result.objectives) > 1 else 'the best'}", number_of(each, value), "good")
        for each, value in zip(result.objectives, best.values, strict=True)
    ]
    cards += [(axis.path.rsplit(".", 1)[1].replace("_", " "), say.clean(best.fields[axis.path]), "") for axis in result.axes[:4]]
    if best.silicon is not None:
        cards += [("silicon", f"{best.silicon.area:,.0f} mm²", ""), ("a GPU costs to make", say.dollars(best.silicon.dollars), "")]
    failed = sum(result.failed.values())
    cards.append(("designs tried", f"{result.trials:,}", ""))
    return [*cards, ("without a plan", f"{failed:,}", "")] if failed else cards


def _pictures(result: DesignResult) -> list[tuple[str, Markup]]:
    """Objectives against each other; the first one against price to make and area where these are known, else over each range."""
    first, found = result.objectives[0], []
    for at, other in enumerate(result.objectives[1:], 1):
        found.append((f"{first.unit} and {other.unit}", _scatter(result, partial(_objective, other, at), other.unit, True)))
    if any(one.silicon is not None for one in result.designs):
        found.append((f"{first.unit} and the price to make a GPU", _scatter(result, _price, "$ to make a GPU", True)))
        found.append((f"{first.unit} and the area of silicon", _scatter(result, _area, "mm² of silicon", True)))
    for axis in result.axes:
        if not axis.values:
            name = axis.path.rsplit(".", 1)[1].replace("_", " ")
            title = f"{name}, {axis.unit}" if axis.unit else name
            found.append((f"{first.unit} over {name}", _scatter(result, partial(_field, axis), title, False)))
    return [(title, picture) for title, picture in found if picture]


def _objective(of: Objective, at: int, one: Design) -> float | None:
    return of.shown(one.values[at])


def _area(one: Design) -> float | None:
    return None if one.silicon is None else one.silicon.area


def _price(one: Design) -> float | None:
    return None if one.silicon is None else one.silicon.dollars


def _field(axis: DesignField, one: Design) -> float | None:
    try:
        return float(one.fields[axis.path].removesuffix(axis.unit))
    except ValueError:
        return None


def _scatter(result: DesignResult, across: Value, title: str, joined: bool) -> Markup:
    """A point for each design; filled where no other one beats it. `joined`: a line along those that none beats in this picture."""
    several, first = len(result.objectives) > 1, result.objectives[0]
    front = max(1, result.front) if several else 1
    placed = [(at, one, x, first.shown(one.values[0])) for at, one in enumerate(result.designs[:MOST_POINTS])
              if (x := across(one)) is not None]  # fmt: skip
    points = [
        PlotPoint(x, y, _tell(result, one, at), GREEN if at == 0 else BLUE if at < front else GREY,
                  "square" if at == 0 else "circle", at >= front)
        for at, one, x, y in reversed(placed)
    ]  # fmt: skip
    lines, best = [], math.inf
    if joined:
        ahead = []
        for _, one, x, y in sorted(placed, key=lambda each: (each[2], each[1].values[0])):
            if one.values[0] < best:
                best = one.values[0]
                ahead.append((x, y))
        lines.append(PlotLine("no design has less of one without more of the other", ahead, "var(--ink)", "5 4", 1.2))
    picture = draw_plot(
        points, lines, PlotAxis(title, say_number), PlotAxis(first.unit, say_number), f"{first.unit} against {title}", 340.0
    )  # fmt: skip
    entries = [("row 1 (square)", GREEN), ("other designs", GREY)]
    if front > 1:
        entries.insert(1, ("filled: no other one beats it in every objective", BLUE))
    about = "dashed: no design has less of one without more of the other" if joined else ""
    return picture + key_line(entries, about) if picture else picture


def _tell(result: DesignResult, one: Design, at: int) -> str:
    """A design in a line."""
    fields = ", ".join(f"{axis.path.rsplit('.', 1)[1]} {say.clean(one.fields[axis.path])}" for axis in result.axes)
    values = ", ".join(f"{number_of(e, v)} {e.unit}" for e, v in zip(result.objectives, one.values, strict=True))
    return f"row {at + 1}: {fields}: {values}"


def _table(result: DesignResult) -> Markup:
    made = any(one.silicon is not None for one in result.designs)
    heads = [
        ("", True), *((axis.path.rsplit(".", 1)[1].replace("_", " "), False) for axis in result.axes),
        *((each.unit, True) for each in result.objectives), *([("mm²", True), ("$ to make", True)] if made else []),
        ("step", True), ("memory", True), ("plan", False),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for at, one in enumerate(result.designs[:MOST_ROWS]):
        values = [(number_of(e, v), e.shown(v)) for e, v in zip(result.objectives, one.values, strict=True)]
        silicon = one.silicon
        none: list[Cell] = [("-", -1.0)] * 2
        costs = none if silicon is None else [(f"{silicon.area:,.0f}", silicon.area), (f"{silicon.dollars:,.0f}", silicon.dollars)]
        plan = {path: value for path, value in one.plan.change.fields if path in PLAN_FIELDS}
        outcome = one.plan.outcome
        rows.append(
            [(str(at + 1), float(at + 1)), *((say.clean(one.fields[axis.path]), None) for axis in result.axes), *values,
             *(costs if made else []), (say.seconds(outcome.step_time_s), outcome.step_time_s),
             (say.size(outcome.memory), outcome.memory), (plan_words(plan) or "the job's own", None)]
        )  # fmt: skip
    left = [f"{len(result.designs) - MOST_ROWS:,} designs more are not shown."] if len(result.designs) > MOST_ROWS else []
    return frame.part("table", "designs", heads, rows) + paragraphs(left)


def _importance(result: DesignResult) -> Markup:
    most = max(result.importance.values(), default=1.0) or 1.0
    bars = [
        {"label": path, "value": say.percent(share), "share": "", "width": 100.0 * share / most, "colour": BLUE, "title": path}
        for path, share in sorted(result.importance.items(), key=lambda one: -one[1])
    ]
    return frame.part("bars", bars)


def command_of(one: Design) -> str:
    """The command line that predicts a design in full; JOB stands for a job that has no name in the catalogue."""
    job = one.job.name if one.job.name in names("jobs") else "JOB"
    sets = [f"{path}={value}" for path, value in one.fields.items()] + list(one.plan.change.without_no_ops(one.job).sets)
    return shlex.join(["windtunnel", "predict", job, *(word for text in sets for word in ("--set", text))])
