"""The page of two jobs: both steps as bars on one scale, what changed and by how much, the fields that differ."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import key_line, paragraphs
from windtunnel.draw.page.frame import Cell
from windtunnel.predict.category import StepGroup
from windtunnel.report.comparison import FIGURES, Comparison, say_field, told_apart, verdict
from windtunnel.report.page.job_lines import describe_job, fields_part
from windtunnel.report.page.plots import BarPart, BarRow, TornadoRow, stacked_bars, tornado
from windtunnel.report.page.prediction import section
from windtunnel.report.words.errors import dollars_within, percent_within, seconds_within
from windtunnel.report.words.parts import COLOUR, group_sums, label_of
from windtunnel.report.words.published import bias_sentence
from windtunnel.sheet import numbers as say
from windtunnel.sheet.numbers import signed_seconds

MOST_PARTS = 16
"""Parts that are drawn, those that differ most first."""

SMALL = 1e-3
"""Share of a step below which a difference is not drawn."""


def write_page(comparison: Comparison, path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(comparison, command), path)


def page(comparison: Comparison, command: str = "") -> str:
    """The page's text."""
    sections = [
        section("Both steps", _bars(comparison)),
        section("What changed, part by part", _changes(comparison)),
        section("Figures", _figures(comparison)),
        section("Fields that differ", _fields(comparison)),
        section("The jobs", fields_part(comparison.a.job, "fields-a", "A: ") + fields_part(comparison.b.job, "fields-b", "B: ")),
    ]
    a, b = (say.clean(one.job.name) for one in (comparison.a, comparison.b))
    title = f"{a} with and without changes" if a == b else f"{a} and {b}"
    subtitle = [_about(comparison, 0), _about(comparison, 1)]
    return frame.page(title, subtitle, _cards(comparison), Markup().join(sections), None, command)


def _about(comparison: Comparison, side: int) -> str:
    one = (comparison.a, comparison.b)[side]
    return f"{'AB'[side]}: {say.clean(one.job.name)}{told_apart(comparison, side)}: {describe_job(one.job)[0]}"


def _cards(comparison: Comparison) -> list[tuple[str, str, str]]:
    a, b = comparison.a, comparison.b
    ratio = b.step_time_s / a.step_time_s if a.step_time_s else 1.0
    rate = b.tokens_per_s / a.tokens_per_s if a.tokens_per_s else 1.0
    mood = "" if abs(rate - 1.0) < 5e-4 else "good" if rate > 1.0 else "bad"
    cards = [
        ("step of A", seconds_within(a.step_time_s, a.relative_error), ""),
        ("step of B", seconds_within(b.step_time_s, b.relative_error), ""),
        ("step, B beside A", f"{100 * (ratio - 1.0):+.1f} %", ""),
        ("tokens/s, B beside A", f"{100 * (rate - 1.0):+.1f} %", mood),
        ("MFU of A", percent_within(a.mfu, a.relative_error), ""),
        ("MFU of B", percent_within(b.mfu, b.relative_error), ""),
    ]
    for name, one in (("A", a), ("B", b)):
        if one.cost is not None:
            cards.append((f"cost of the run of {name}", dollars_within(one.cost, one.relative_error), ""))
        if not one.fits:
            cards.append((f"memory of {name}", "does not fit", "bad"))
    return cards


def _bars(comparison: Comparison) -> Markup:
    """The two steps on one scale of seconds, group by group."""
    rows, used = [], dict.fromkeys(group for one in (comparison.a, comparison.b) for group in group_sums(one.breakdown))
    for name, one in (("A", comparison.a), ("B", comparison.b)):
        groups = group_sums(one.breakdown).items()
        parts = [BarPart(str(group), seconds, COLOUR[group]) for group, seconds in groups]
        rows.append(BarRow(f"{name}  {say.clean(one.job.name)}", parts, seconds_within(one.step_time_s, one.relative_error)))
    key = key_line([(str(group), COLOUR[group]) for group in StepGroup if group in used])
    lines = [verdict(comparison), _within_errors(comparison)]
    lines += [f"{name}: {text}" for name, one in (("A", comparison.a), ("B", comparison.b)) if (text := bias_sentence(one))]
    return paragraphs(lines) + stacked_bars(rows, say.seconds, "both steps, group by group", 44.0) + key


def _within_errors(comparison: Comparison) -> str:
    """How the difference relates to the errors, most of which both steps share."""
    a, b = comparison.a, comparison.b
    apart = abs(b.step_time_s / a.step_time_s - 1.0) if a.step_time_s else 0.0
    most = max(a.relative_error, b.relative_error)
    if apart > most:
        return f"The steps differ by {say.percent(apart)}, more than either is uncertain by (±{100 * most:.0f} %)."
    return (
        f"The steps differ by {say.percent(apart)}, less than ±{100 * most:.0f} %, by which each is uncertain alone. Most of that "
        "error is common to both, where they share GPU and framework: their order is surer than their times."
    )


def _changes(comparison: Comparison) -> Markup:
    """Seconds that B takes less (right) or more (left), part by part, and all parts as a table."""
    step = max(comparison.a.step_time_s, comparison.b.step_time_s)
    moved = sorted(comparison.parts.items(), key=lambda one: -abs(one[1][1] - one[1][0]))
    drawn = [(key, x, y) for key, (x, y) in moved if abs(y - x) >= SMALL * step][:MOST_PARTS]
    rows = [
        TornadoRow(
            label_of(key), (x - y,), (signed_seconds(y - x),), f"{label_of(key)}: {say.seconds(x)} in A, {say.seconds(y)} in B"
        )
        for key, x, y in drawn
    ]
    cells: list[list[Cell]] = [
        [(label_of(key), None), (say.seconds(x), x), (say.seconds(y), y), (_say_change(x, y), y - x)]
        for key, (x, y) in moved
    ]  # fmt: skip
    heads = [("part", False), ("A", True), ("B", True), ("B - A", True)]
    picture = (
        tornado(rows, "seconds that B takes less or more, part by part")
        + Markup('<p class="soft">Blue, to the right: B takes less time than A. Orange, to the left: B takes more.</p>')
        if rows
        else paragraphs(["No part differs by a thousandth of the step."])
    )
    return picture + frame.part("table", "parts", heads, cells)


def _say_change(x: float, y: float) -> str:
    """A difference with its sign; = where there is none."""
    told = signed_seconds(y - x)
    return "=" if told == "+0" else told


def _figures(comparison: Comparison) -> Markup:
    rows: list[list[Cell]] = []
    for name, (x, y) in comparison.figures.items():
        figure, ratio = FIGURES[name], y / x if x else float("nan")
        told = "" if not abs(ratio - 1.0) > 5e-4 else "better" if (ratio > 1.0) == figure.more else "worse"
        rows.append([(figure.label, None), (figure.write(x), x), (figure.write(y), y), _ratio(ratio), (told, None)])
    return frame.part("table", "figures", [("", False), ("A", True), ("B", True), ("B / A", True), ("B is", False)], rows)


def _ratio(ratio: float) -> Cell:
    return (f"{ratio:.3f}", ratio) if ratio == ratio else ("-", -1.0)


def _fields(comparison: Comparison) -> Markup:
    if not comparison.fields:
        return paragraphs(["Both jobs are the same."])
    rows: list[list[Cell]] = [
        [(path, None), (say_field(x), None), (say_field(y), None)] for path, (x, y) in comparison.fields.items()
    ]
    return frame.part("table", "differ", [("field", False), ("A", False), ("B", False)], rows)
