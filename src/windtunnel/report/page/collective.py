"""The page of a collective: time over size of each algorithm and what is chosen, beside measured points; over an engine, the links
during the call of the largest size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import BLUE, COLOURS, ORANGE, key_line, paragraphs
from windtunnel.draw.page.frame import Cell
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.records.measured_calls import MeasuredCall
from windtunnel.report.page.load import network_part
from windtunnel.report.page.plots import PlotAxis, PlotLine, PlotPoint, draw_plot
from windtunnel.report.page.prediction import section
from windtunnel.sheet import numbers as say

Row = Mapping[str, object]
"""As `windtunnel.collective` returns them."""

DASHES = ("7 4", "2 4", "9 3 2 3", "4 2", "1 3", "12 4")
"""Of algorithms, beside their colours."""


class CollectiveAnswer(NamedTuple):
    """What a page shows. `rows`: of the table; `algorithms`: rows of each that NCCL could take; `measured`: of the same call;
    `seen`: the row whose call's links are drawn, and its traffic."""

    rows: Sequence[Row]
    algorithms: Mapping[str, Sequence[Row]] = {}
    measured: Sequence[MeasuredCall] = ()
    seen: tuple[Row, Traffic] | None = None


def write_page(path: str | Path, title: str, about: Sequence[str], answer: CollectiveAnswer, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `about`: lines below the title; `command`: in the footer."""
    frame.write_page(page(title, about, answer, command), path)


def page(title: str, about: Sequence[str], answer: CollectiveAnswer, command: str = "") -> str:
    """The page's text."""
    sections = [section("Time over size", _times(answer))] if answer.rows else []
    if answer.seen is not None:
        row, traffic = answer.seen
        sections.append(section(f"The network during the call of {say.size(_number(row, 'size'))}", network_part(traffic)))
    sections.append(section("All sizes", _table(answer)))
    if answer.algorithms:
        sections.append(section("Each algorithm alone", _each_alone(answer)))
    return frame.page(title, about, _cards(answer), Markup().join(sections), None, command)


def _cards(answer: CollectiveAnswer) -> list[tuple[str, str, str]]:
    if not answer.rows:
        return [("sizes", "none ended", "bad")]
    last = answer.seen[0] if answer.seen is not None else max(answer.rows, key=lambda row: _number(row, "size"))
    error = _number(last, "relative_error") if "relative_error" in last else 0.0
    within = f" ±{100.0 * error:.0f} %" if error > 0.0 else ""
    cards = [
        (f"time of {say.size(_number(last, 'size'))}", say.seconds(_seconds(last)) + within, ""),
        ("bus bandwidth", f"{_number(last, 'busbw_GBs'):.1f} GB/s", ""),
        ("algorithm", f"{last['algorithm']}, {last['protocol']}", ""),
        ("channels", f"{_number(last, 'channels'):.0f}", ""),
    ]
    if errors := [abs(each) for row in answer.rows if (each := _error(row, answer.measured)) is not None]:
        mean = sum(errors) / len(errors)
        cards.append((f"mean |error| of {len(errors)} sizes", f"{100.0 * mean:.1f} %", "good" if mean < 0.15 else "bad"))
    return cards


def _times(answer: CollectiveAnswer) -> Markup:
    """Time of each algorithm over the size, both logarithmic; what is chosen as points, what was measured as crosses."""
    lines: list[PlotLine] = []
    marks: list[PlotPoint] = []
    entries = []
    for at, (name, rows) in enumerate(answer.algorithms.items()):
        shade = COLOURS[2 + at % (len(COLOURS) - 2)]
        curve = [(_number(row, "size"), _seconds(row)) for row in rows]
        lines.append(PlotLine(f"{name} alone", curve, shade, DASHES[at % len(DASHES)], 1.6))
        if len(curve) == 1:
            marks.append(PlotPoint(*curve[0], f"{name} alone: {say.seconds(curve[0][1])}", shade, "square", True))
        entries.append((name, shade))
    chosen = [(_number(row, "size"), _seconds(row), row) for row in answer.rows]
    lines.append(PlotLine("predicted", [(size, took) for size, took, _ in chosen], BLUE, "", 1.2))
    marks += [
        PlotPoint(size, took, f"{say.size(size)}: {say.seconds(took)}, {row['algorithm']} {row['protocol']}", BLUE)
        for size, took, row in chosen
    ]
    marks += [
        PlotPoint(call.bytes, call.seconds, f"measured, {say.size(call.bytes)}: {say.seconds(call.seconds)}", ORANGE, "cross")
        for call in answer.measured
    ]
    key = [("predicted, with what is chosen", BLUE), *([("measured (crosses)", ORANGE)] if answer.measured else []), *entries]
    sizes = tuple(sorted({size for size, _, _ in chosen}))
    picture = draw_plot(
        marks, lines, PlotAxis("bytes", say.size, True, ticks=sizes), PlotAxis("time of a call", say.seconds, True),
        "time over size", 420.0,
    )  # fmt: skip
    return picture + key_line(key, "dashed lines: one algorithm alone" if entries else "") + paragraphs(_switch_lines(answer.rows))


def _switch_lines(rows: Sequence[Row]) -> list[str]:
    """From which size on what is chosen."""
    lines: list[str] = []
    last = ""
    for row in sorted(rows, key=lambda one: _number(one, "size")):
        chosen = f"{row['algorithm']}, {row['protocol']}"
        if chosen != last:
            lines.append(f"{say.size(_number(row, 'size'))}: {chosen}")
        last = chosen
    return [f"Chosen from each size on: {'; '.join(lines)}."] if lines else []


def _error(row: Row, measured: Sequence[MeasuredCall]) -> float | None:
    """Predicted over measured, less one, of the fastest measured call of the row's size; None where none was measured."""
    same = [call.seconds for call in measured if call.bytes == _number(row, "size") and call.seconds > 0.0]
    return _seconds(row) / min(same) - 1.0 if same else None


def _table(answer: CollectiveAnswer) -> Markup:
    heads = [("size", True), ("time", True), ("algbw GB/s", True), ("busbw GB/s", True), ("algorithm", False), ("protocol", False),
             ("channels", True)]  # fmt: skip
    heads += [("measured", True), ("predicted beside measured", True)] if answer.measured else []
    rows: list[list[Cell]] = []
    for row in answer.rows:
        cells: list[Cell] = [
            (say.size(_number(row, "size")), _number(row, "size")), (say.seconds(_seconds(row)), _seconds(row)),
            (f"{_number(row, 'algbw_GBs'):.1f}", _number(row, "algbw_GBs")),
            (f"{_number(row, 'busbw_GBs'):.1f}", _number(row, "busbw_GBs")),
            (str(row["algorithm"]), None), (str(row["protocol"]), None),
            (f"{_number(row, 'channels'):.0f}", _number(row, "channels")),
        ]  # fmt: skip
        if answer.measured:
            error = _error(row, answer.measured)
            took = None if error is None else _seconds(row) / (1.0 + error)
            cells.append(("-", -1.0) if took is None else (say.seconds(took), took))
            cells.append(("-", -1e9) if error is None else (f"{100.0 * error:+.1f} %", error))
        rows.append(cells)
    return frame.part("table", "sizes", heads, rows)


def _each_alone(answer: CollectiveAnswer) -> Markup:
    """The time of each algorithm at each size."""
    names = list(answer.algorithms)
    took = {name: {_number(row, "size"): row for row in rows} for name, rows in answer.algorithms.items()}
    sizes = sorted({size for rows in took.values() for size in rows})
    rows: list[list[Cell]] = []
    for size in sizes:
        found = [took[name].get(size) for name in names]
        cells: list[Cell] = [(say.size(size), size)]
        for row in found:
            told = ("-", -1.0) if row is None else (f"{say.seconds(_seconds(row))} {row['protocol']}", _seconds(row))
            cells.append(told)
        rows.append(cells)
    table = frame.part("table", "algorithms", [("size", True), *((name, True) for name in names)], rows)
    about = "What a call would take if NCCL_ALGO allowed one algorithm only, with its best protocol, in closed form."
    return paragraphs([about]) + table


def _seconds(row: Row) -> float:
    return _number(row, "time_us") * 1e-6


def _number(row: Row, name: str) -> float:
    return float(str(row[name]))
