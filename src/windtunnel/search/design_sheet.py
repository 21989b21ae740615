"""What `design` shows: the front of what designs cost and do, the best ones with their plans, what each field is worth."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from functools import partial

from windtunnel.predict.sheet.job import describe_job, fields_part
from windtunnel.search.change import plan_words
from windtunnel.search.design import Design, DesignField, DesignResult
from windtunnel.search.objective import Objective, number_of
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Bar, Bars, Block, Cell, Column, Curve, Figure, Lines, Mark, Plot, Scale, Section, Sheet, Table
from windtunnel.sheet.colours import BLUE, GREEN, GREY
from windtunnel.sheet.sentence import Sentence, quote
from windtunnel.spec import names

PLAN_FIELDS = tuple(f"plan.{name}" for name in ("tp", "cp", "pp", "vpp", "ep", "micro_batch", "recompute", "sharding"))
"""Fields of a plan that fit a line."""
MOST_ROWS, MOST_POINTS = 200, 1200
"""Rows of the table and points of a picture at most, the best first."""

Value = Callable[[Design], float | None]


def design_sheet(result: DesignResult, top: int = 10) -> Sheet:
    """What `design` shows. `top`: rows in the terminal."""
    best, several = result.designs[0], len(result.objectives) > 1
    title = "Designs that no other tried design beats in every objective" if several else "Best designs that were tried"
    shown = min(top, result.front) if several else top
    worth = Sentence("What sets designs apart that are good in {objective}", objective=Sentence(result.objectives[0].name))
    return Sheet(
        Sentence("Designs for {job}", job=say.clean(best.job.name)),
        "",
        _figures(result),
        (
            *(Section(name, (plot,)) for name, plot in _plots(result)),
            Section(title, _table(result, shown)),
            Section(worth, _importance(result) if result.importance else ()),
            Section("How sure this is", (Lines(tuple(tried_lines(result))),)),
            Section("To predict the best design in full", (Lines((quote(command_of(best)),), mood="code", detail=True),)),
            Section("The best design's job", (fields_part(best.job),)),
        ),
        describe_job(best.job),
        titled=True,
    )


def _short_name(axis: DesignField) -> str:
    return axis.path.rsplit(".", 1)[1].replace("_", " ")


def _figures(result: DesignResult) -> tuple[Figure, ...]:
    best, several = result.designs[0], len(result.objectives) > 1
    figures = []
    for each, value in zip(result.objectives, best.values, strict=True):
        label = Sentence("{unit}, of the first" if several else "{unit}, the best", unit=Sentence(each.unit))
        figures.append(Figure(f"designs.{each.name}", label, each.shown(value), each.unit, None, number_of(each, value), "good"))
    for axis in result.axes[:4]:
        figures.append(Figure(f"designs.{axis.path}", quote(_short_name(axis)), quote(say.clean(best.fields[axis.path]))))
    if (silicon := best.silicon) is not None:
        figures.append(Figure("designs.area", "silicon", silicon.area, "mm²", None, quote(f"{silicon.area:,.0f} mm²")))
        figures.append(Figure("designs.dollars_to_make", "a GPU costs to make", silicon.dollars, "$"))
    figures.append(Figure("trials", "designs tried", float(result.trials)))
    if failed := sum(result.failed.values()):
        figures.append(Figure("failed", "without a plan", float(failed)))
    return tuple(figures)


def tried_lines(result: DesignResult) -> list[str]:
    """How many designs were tried, and why some have no plan."""
    failed = sum(result.failed.values())
    text = "{count} designs were tried; {failed} have no plan. A sampler proves nothing about the others."
    lines: list[str] = [Sentence(text, count=f"{result.trials:,}", failed=f"{failed:,}")]
    if failed:
        why = say.clean(max(result.failed, key=lambda reason: result.failed[reason]))
        lines.append(Sentence("Most often: {why}", why=why))
    return lines


def _plots(result: DesignResult) -> list[tuple[str, Plot]]:
    """Objectives against each other; the first one against price to make and area where these are known, else over each range."""
    first, plots = result.objectives[0], []
    unit = Sentence(first.unit)
    for place, other in enumerate(result.objectives[1:], 1):
        title = Sentence("{one} and {other}", one=unit, other=Sentence(other.unit))
        plots.append((title, _scatter(result, partial(_objective, other, place), Sentence(other.unit), True)))
    if any(design.silicon is not None for design in result.designs):
        title = Sentence("{one} and the price to make a GPU", one=unit)
        plots.append((title, _scatter(result, _price, Sentence("$ to make a GPU"), True)))
        title = Sentence("{one} and the area of silicon", one=unit)
        plots.append((title, _scatter(result, _area, Sentence("mm² of silicon"), True)))
    for axis in result.axes:
        if not axis.values:
            name = _short_name(axis)
            across = quote(f"{name}, {axis.unit}" if axis.unit else name)
            plots.append(
                (Sentence("{one} over {field}", one=unit, field=name), _scatter(result, partial(_field, axis), across, False))
            )
    return [(title, plot) for title, plot in plots if plot.marks]


def _objective(of: Objective, place: int, design: Design) -> float | None:
    return of.shown(design.values[place])


def _area(design: Design) -> float | None:
    return None if design.silicon is None else design.silicon.area


def _price(design: Design) -> float | None:
    return None if design.silicon is None else design.silicon.dollars


def _field(axis: DesignField, design: Design) -> float | None:
    try:
        return float(design.fields[axis.path].removesuffix(axis.unit))
    except ValueError:
        return None


def _scatter(result: DesignResult, across: Value, title: Sentence, joined: bool) -> Plot:
    """A point for each design; filled where no other one beats it. `joined`: a line along those that none beats in this picture."""
    first = result.objectives[0]
    front = max(1, result.front) if len(result.objectives) > 1 else 1
    placed = [
        (place, design, x, first.shown(design.values[0]))
        for place, design in enumerate(result.designs[:MOST_POINTS])
        if (x := across(design)) is not None
    ]
    marks = tuple(
        Mark(x, y, _tell(result, design, place), GREEN if place == 0 else BLUE if place < front else GREY,
             "square" if place == 0 else "circle", place >= front)
        for place, design, x, y in reversed(placed)
    )  # fmt: skip
    curves, best = [], math.inf
    if joined:
        ahead = []
        for _, design, x, y in sorted(placed, key=lambda each: (each[2], each[1].values[0])):
            if design.values[0] < best:
                best = design.values[0]
                ahead.append((x, y))
        curves.append(Curve("no design has less of one without more of the other", "var(--ink)", tuple(ahead), "5 4"))
    legend = [("row 1 (square)", GREEN), ("other designs", GREY)]
    if front > 1:
        legend.insert(1, ("filled: no other one beats it in every objective", BLUE))
    about = "dashed: no design has less of one without more of the other" if joined else ""
    label = Sentence("{up} against {across}", up=Sentence(first.unit), across=title)
    scales = Scale(title), Scale(Sentence(first.unit))
    return Plot(label, *scales, marks, tuple(curves), 340.0, tuple(legend), about, detail=True)


def _tell(result: DesignResult, design: Design, place: int) -> str:
    """A design in a line."""
    fields = ", ".join(f"{axis.path.rsplit('.', 1)[1]} {say.clean(design.fields[axis.path])}" for axis in result.axes)
    values = ", ".join(f"{number_of(e, v)} {e.unit}" for e, v in zip(result.objectives, design.values, strict=True))
    return Sentence("row {row}: {what}", row=place + 1, what=f"{fields}: {values}")


def _table(result: DesignResult, shown: int) -> tuple[Block, ...]:
    made = any(design.silicon is not None for design in result.designs)
    columns = (
        Column("", True), *(Column(quote(_short_name(axis)), axis.unit != "") for axis in result.axes),
        *(Column(Sentence(each.unit), True) for each in result.objectives),
        *((Column("mm²", True), Column("$ to make", True)) if made else ()),
        Column("step", True, "terminal"), Column("memory", True, "terminal"), Column("plan", wraps=True),
    )  # fmt: skip
    rows = []
    for place, design in enumerate(result.designs[:MOST_ROWS]):
        values = [Cell(number_of(e, v), e.shown(v)) for e, v in zip(result.objectives, design.values, strict=True)]
        silicon = design.silicon
        costs = [Cell("-")] * 2
        if silicon is not None:
            costs = [Cell(f"{silicon.area:,.0f}", silicon.area), Cell(f"{silicon.dollars:,.0f}", silicon.dollars)]
        plan = {path: value for path, value in design.plan.change.fields if path in PLAN_FIELDS}
        outcome = design.plan.outcome
        fields = [Cell(quote(say.clean(design.fields[axis.path])), _field(axis, design)) for axis in result.axes]
        rows.append(
            (
                Cell(str(place + 1), float(place + 1)), *fields, *values, *(costs if made else ()),
                Cell(say.seconds(outcome.step_time_s), outcome.step_time_s), Cell(say.size(outcome.memory), outcome.memory),
                Cell(plan_words(plan) or Sentence("the job's own")),
            )
        )  # fmt: skip
    left = Sentence("{count} designs more are not shown.", count=f"{len(result.designs) - MOST_ROWS:,}")
    beyond = (Lines((left,), mood="soft", detail=True),) if len(result.designs) > MOST_ROWS else ()
    return (Table("designs", columns, tuple(rows), most=shown), *beyond)


def _importance(result: DesignResult) -> tuple[Block, ...]:
    ordered = sorted(result.importance.items(), key=lambda pair: -pair[1])
    most = max(result.importance.values(), default=1.0) or 1.0
    rows = tuple((Cell(quote(path)), Cell(say.percent(share), share)) for path, share in ordered)
    bars = tuple(Bar(quote(path), share, share / most, BLUE) for path, share in ordered)
    return (
        Table("importance", (Column("field"), Column("share", True)), rows, brief=True),
        Bars(bars, "%", detail=True),
    )


def command_of(design: Design) -> str:
    """The command line that predicts a design in full; JOB stands for a job that has no name in the catalogue."""
    job = design.job.name if design.job.name in names("jobs") else "JOB"
    sets = [f"{path}={value}" for path, value in design.fields.items()]
    sets += list(design.plan.change.without_no_ops(design.job).sets)
    return shlex.join(["windtunnel", "predict", job, *(word for text in sets for word in ("--set", text))])
