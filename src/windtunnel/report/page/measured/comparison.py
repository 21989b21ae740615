"""The page of a measured run beside the prediction of its job: both steps as bars, causes with their price, parts, calls, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import BLUE, GREY, key_line, paragraphs
from windtunnel.draw.page.frame import Cell
from windtunnel.report.page.job_lines import describe_job, fields_part
from windtunnel.report.page.measured.broken import broken_part
from windtunnel.report.page.measured.colours import BY_NAME, CLASSES
from windtunnel.report.page.plots import BarPart, BarRow, TornadoRow, stacked_bars, tornado
from windtunnel.report.page.prediction import section
from windtunnel.report.words.errors import seconds_within
from windtunnel.report.words.measured.comparison import (
    course_lines,
    log_doubts,
    log_figures,
    step_lines,
    suspect_command,
    unexplained_lines,
)
from windtunnel.report.words.measured.seconds import seconds, signed_seconds
from windtunnel.runs.comparison import RunComparison
from windtunnel.runs.log_facts import LogFacts
from windtunnel.runs.recording import recording_hint
from windtunnel.sheet import numbers as say

MOST_ROWS, MOST_CAUSES, HIDDEN = 200, 12, "hidden communication"


def write_page(comparison: RunComparison, path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(comparison, command), path)


def page(comparison: RunComparison, command: str = "", broken: Sequence[str] = ()) -> str:
    """The page's text. `broken`: what of the run could not be read."""
    sections = [*broken_part(broken), section("The step", paragraphs(step_lines(comparison)) + _bars(comparison))]
    if comparison.fit is not None:
        sections.append(section("Largest causes", _causes(comparison)))
    if comparison.log is not None:
        sections.append(section("What the log says", _log(comparison.log)))
    if comparison.suspects:
        sections.append(section("Suspects, likeliest first", _suspects(comparison)))
    if comparison.fit is None:
        sections.append(section("To see where the time goes", _recording(comparison)))
    if comparison.parts:
        sections.append(section("Parts of a step, mean over ranks", _parts(comparison)))
    if comparison.calls:
        sections.append(section("Calls", _calls(comparison)))
    if comparison.ranks:
        sections.append(section("Ranks", _ranks(comparison)))
    sections.append(section("The job", fields_part(comparison.job)))
    title = f"A run of {say.clean(comparison.job.name)} and what we expect"
    return frame.page(title, describe_job(comparison.job), _cards(comparison), Markup().join(sections), None, command)


def _cards(comparison: RunComparison) -> list[tuple[str, str, str]]:
    expected, error = comparison.expected_step, comparison.relative_error
    cards = [("expected step", seconds_within(expected, error), "")]
    if comparison.steps:
        over = comparison.measured_step / expected - 1.0
        inside = abs(over) <= error
        cards = [
            (
                f"measured step, of {comparison.steps:,}",
                f"{seconds(comparison.measured_step)} ±{seconds(comparison.step_spread)}",
                "",
            ),
            *cards,
            ("measured beside expected", f"{100 * over:+.1f} %", "" if inside else "bad" if over > 0.0 else "good"),
            ("the prediction's error", "explains it" if inside else f"explains {error / abs(over):.0%} of it", ""),
        ]
    if comparison.fit is not None:
        cards.append(("stays unexplained", signed_seconds(comparison.measured_step - comparison.explained_step), ""))
    return cards


def _bars(comparison: RunComparison) -> Markup:
    """Measured and expected on one scale; their parts where the run has traces."""
    classes = [part.name for part in comparison.parts if part.name not in BY_NAME]
    colour = BY_NAME | {name: CLASSES[n % len(CLASSES)] for n, name in enumerate(classes)}
    rows = []
    for name, step in (("measured", comparison.measured_step), ("expected", comparison.expected_step)):
        if step != step:
            continue
        parts = [BarPart(p.name, getattr(p, name), colour[p.name]) for p in comparison.parts if p.name != HIDDEN]
        rows.append(BarRow(name, parts or [BarPart(name, step, BLUE if name == "measured" else GREY)], seconds(step)))
    key = (
        key_line([(p.name, colour[p.name]) for p in comparison.parts if p.name != HIDDEN and max(p.measured, p.expected) > 0.0])
        if comparison.parts
        else Markup()
    )
    return stacked_bars(rows, seconds, "the measured and the expected step", 44.0) + key


def _causes(comparison: RunComparison) -> Markup:
    """What the predicted step grows by with each factor alone, and how to test each."""
    causes = comparison.causes[:MOST_CAUSES]
    if not causes:
        return paragraphs(["None: every factor is within its error of 1.", *unexplained_lines(comparison)])
    rows = [
        TornadoRow(one.words, (-one.seconds,), (signed_seconds(one.seconds),), f"{one.words}: {signed_seconds(one.seconds)}")
        for one in causes
    ]
    cells: list[list[Cell]] = [
        [(one.words, None), (f"{one.factor:.3f}", one.factor), (signed_seconds(one.seconds), one.seconds), (one.test, None)]
        for one in causes
    ]  # fmt: skip
    heads = [("cause", False), ("factor", True), ("the step grows by", True), ("to test it", False)]
    about = Markup('<p class="soft">Orange, to the left: the run is slower for it than we expect. Blue, to the right: faster.</p>')
    return (
        tornado(rows, "seconds of each cause")
        + about
        + frame.part("table", "causes", heads, cells)
        + paragraphs(unexplained_lines(comparison))
    )


def _log(log: LogFacts) -> Markup:
    rows: list[list[Cell]] = [[(cell, None) for cell in row] for row in log_figures(log)]
    heads = [(head, False) for head in ("logged", "measured", "expected", "difference")]
    others = [f"{name}: {theirs} in the log, {ours} in the job" for name, theirs, ours in log.contradictions]
    warning = ["The log is of another job than the one it is compared with:", *others] if others else []
    table = frame.part("table", "logged", heads, rows) if rows else Markup()
    return table + frame.part("reasons", [*course_lines(log), *log_doubts(log)], warning)


def _suspects(comparison: RunComparison) -> Markup:
    """Each suspect alone in the prediction, beside the difference that is to be explained."""
    rows = [
        TornadoRow(one.words, (-one.seconds,), (f"{signed_seconds(one.seconds)}, {100 * one.share:.0f} %",), one.test)
        for one in comparison.suspects[:MOST_CAUSES]
    ]
    cells: list[list[Cell]] = [
        [(one.words, None), (signed_seconds(one.seconds), one.seconds), (f"{100 * one.share:.0f} %", one.share), (one.test, None),
         (suspect_command(one), None)]
        for one in comparison.suspects
    ]  # fmt: skip
    heads = [
        ("suspect", False),
        ("the step grows by", True),
        ("of the difference", True),
        ("to test it", False),
        ("the whole step with it", False),
    ]
    return tornado(rows, "seconds of each suspect") + frame.part("table", "suspects", heads, cells)


def _recording(comparison: RunComparison) -> Markup:
    lines = ["Step times do not say where the time goes. To see it, record traces of two steps, and compare those:"]
    lines.append(recording_hint(comparison.job.runtime.framework))
    return paragraphs(lines) + Markup("<pre><code>windtunnel compare traces/*.json JOB</code></pre>")


def _parts(comparison: RunComparison) -> Markup:
    rows: list[list[Cell]] = [
        [(p.name, None), (seconds(p.measured), p.measured), (seconds(p.expected), p.expected),
         (signed_seconds(p.measured - p.expected), p.measured - p.expected)]
        for p in comparison.parts
    ]  # fmt: skip
    return frame.part("table", "parts", [("part", False), ("measured", True), ("expected", True), ("difference", True)], rows)


def _calls(comparison: RunComparison) -> Markup:
    rows: list[list[Cell]] = [
        [(row.comm, None), (row.axis, None), ("-", -1.0) if row.bytes < 0 else (say.size(row.bytes), row.bytes),
         _cell_of(row.measured_count, f"{row.measured_count:,.1f}"), _cell_of(row.expected_count, f"{row.expected_count:,.1f}"),
         _cell_of(row.measured_each, seconds(row.measured_each)), _cell_of(row.expected_each, seconds(row.expected_each))]
        for row in comparison.calls[:MOST_ROWS]
    ]  # fmt: skip
    heads = [
        ("call", False), ("over", False), ("bytes", True), ("count", True), ("count, expected", True), ("one takes", True),
        ("one takes, expected", True),
    ]  # fmt: skip
    return frame.part("table", "calls", heads, rows)


def _cell_of(value: float, words: str) -> Cell:
    return (words, value) if value == value else ("-", -1.0)


def _ranks(comparison: RunComparison) -> Markup:
    rows: list[list[Cell]] = [
        [(str(row.rank), float(row.rank)), (str(row.stage), float(row.stage)), (seconds(row.compute), row.compute),
         (seconds(row.expected_compute), row.expected_compute), (seconds(row.kept_waiting), row.kept_waiting),
         (seconds(row.waited), row.waited)]
        for row in sorted(comparison.ranks, key=lambda one: -one.kept_waiting)[:MOST_ROWS]
    ]  # fmt: skip
    heads = [
        ("rank", True), ("stage", True), ("kernels", True), ("kernels, expected", True), ("others waited for it", True),
        ("it waited", True),
    ]  # fmt: skip
    return frame.part("table", "ranks", heads, rows)
