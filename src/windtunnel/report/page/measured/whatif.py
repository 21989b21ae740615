"""The page of changes to a measured step: what each gives, as a tornado, and what each answer rests on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import paragraphs
from windtunnel.draw.page.frame import Cell
from windtunnel.report.page.measured.broken import broken_part
from windtunnel.report.page.plots import TornadoRow, tornado
from windtunnel.report.page.prediction import section
from windtunnel.report.words.measured.seconds import seconds, signed_seconds
from windtunnel.runs.whatif import WhatIf
from windtunnel.sheet import numbers as say


def write_page(rows: Sequence[WhatIf], path: str | Path, command: str = "") -> None:
    """Writes the page; FileError if the path cannot be written. `command`: shown in the footer."""
    frame.write_page(page(rows, command), path)


def page(rows: Sequence[WhatIf], command: str = "", broken: Sequence[str] = ()) -> str:
    """The page's text. `rows`: of one run, one or more; `broken`: what of it could not be read."""
    first = rows[0]
    ordered = sorted(rows, key=lambda one: one.answer)
    best = ordered[0]
    cards = [("measured step", seconds(first.measured), ""), ("replayed unchanged", seconds(first.replayed), "")]
    if first.measured:
        cards.append(("replay beside measured", f"{100 * (first.replayed / first.measured - 1.0):+.1f} %", ""))
    if best.answer < best.measured:
        cards.append(("most comes of", f"{best.text}: {_share(best)}", "good"))
    sections = [
        *broken_part(broken),
        section("What each change gives, alone", _tornado(ordered)),
        section("What each answer rests on", _table(rows)),
    ]
    about = "Each change is applied alone to the measured step, whose other times stay as they were measured."
    return frame.page("A measured step with one thing changed", [about], cards, Markup().join(sections), None, command)


def _share(one: WhatIf) -> str:
    return f"{100 * (one.answer / one.measured - 1.0):+.1f} %" if one.measured else "-"


def _tornado(rows: Sequence[WhatIf]) -> Markup:
    bars = [
        TornadoRow(
            one.text,
            (one.measured - one.answer,),
            (f"{signed_seconds(one.answer - one.measured)} ({_share(one)})",),
            one.basis_modelled,
        )
        for one in rows
    ]
    about = "Blue, to the right: the step takes less time with it. Orange, to the left: more."
    return tornado(bars, "seconds that each change gives") + Markup('<p class="soft">{}</p>').format(about)


def _table(rows: Sequence[WhatIf]) -> Markup:
    cells: list[list[Cell]] = [
        [(one.text, None), (seconds(one.answer), one.answer),
         (signed_seconds(one.answer - one.measured), one.answer - one.measured),
         (_share(one), one.answer / one.measured - 1.0 if one.measured else 0.0), (f"{one.touched:,}", float(one.touched)),
         (say.clean(one.basis_measured), None), (say.clean(one.basis_modelled), None)]
        for one in rows
    ]  # fmt: skip
    heads = [
        ("change", False), ("step with it", True), ("difference", True), ("share", True), ("tasks changed", True),
        ("measured", False), ("modelled", False),
    ]  # fmt: skip
    untouched = [one.text for one in rows if one.touched == 0]
    told = [f"Nothing of the step is changed by {', '.join(untouched)}: no task is of that kind."] if untouched else []
    return frame.part("table", "changes", heads, cells) + paragraphs(told)
