"""What changes to a measured step show: what each gives, and what each answer rests on."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.runs.report_sheet import broken_section
from windtunnel.runs.whatif import WhatIf
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Change, Column, Figure, Lines, Section, Sheet, Table, Tornado
from windtunnel.sheet.numbers import measured_seconds as seconds
from windtunnel.sheet.numbers import signed_seconds
from windtunnel.sheet.sentence import Sentence, quote

ALONE = "Each change is applied alone to the measured step, whose other times stay as they were measured."


NOTHING = "Nothing of the step is changed by {changes}: no task is of that kind."


def whatif_sheet(rows: Sequence[WhatIf], broken: Sequence[str] = (), captured: bool = False) -> Sheet:
    """What `whatif` shows. `rows`: of one run, one or more; `broken`: what of it could not be read; `captured`: of a capture, of
    which nothing was measured."""
    first, ordered = rows[0], sorted(rows, key=lambda row: row.answer)
    headline = Sentence(
        "Measured: {measured}; replayed unchanged: {replayed}.", measured=seconds(first.measured), replayed=seconds(first.replayed)
    )
    if captured:
        headline = Sentence("The captured step takes {measured}.", measured=seconds(first.measured))
    changes = tuple(
        Change(quote(row.text), (row.measured - row.answer,),
               (quote(f"{signed_seconds(row.answer - row.measured)} ({_share(row)})"),), quote(row.basis_modelled))
        for row in ordered
    )  # fmt: skip
    about = "Blue, to the right: the step takes less time with it. Orange, to the left: more."
    return Sheet(
        "A captured step with one thing changed" if captured else "A measured step with one thing changed", "",
        () if captured else _figures(first, ordered[0]),
        (
            Section("", (Lines((headline, *(line for row in rows for line in _lines(row, captured))), brief=True),)),
            *broken_section(broken),
            Section("What each change gives, alone", (
                Tornado("seconds that each change gives", changes, detail=True), Lines((about,), mood="soft", detail=True))),
            Section("What each answer rests on", _table(rows)),
        ),
        (headline if captured else ALONE,),
        titled=True,
    )  # fmt: skip


def _figures(first: WhatIf, best: WhatIf) -> tuple[Figure, ...]:
    figures = [
        Figure("measured", "measured step", first.measured, "s measured"),
        Figure("replayed", "replayed unchanged", first.replayed, "s measured"),
    ]
    if first.measured:
        beside = first.replayed / first.measured - 1.0
        figures.append(Figure("replay", "replay beside measured", beside, "%", None, f"{100 * beside:+.1f} %"))
    if best.answer < best.measured:
        text = quote(f"{best.text}: {_share(best)}")
        figures.append(Figure("best", "most comes of", best.answer / best.measured - 1.0, "%", None, text, "good"))
    return tuple(figures)


def _share(row: WhatIf) -> str:
    return f"{100 * (row.answer / row.measured - 1.0):+.1f} %" if row.measured else "-"


def _lines(row: WhatIf, captured: bool = False) -> tuple[Sentence, ...]:
    """A change in the terminal."""
    nothing = () if row.touched else (Sentence(NOTHING, changes=row.text),)
    return (
        Sentence(
            "{change}: {time} ({share}), {count} tasks changed", change=row.text, time=seconds(row.answer),
            share=f"{row.answer / row.measured - 1.0:+.1%}", count=f"{row.touched:,}",
        ),
        Sentence("  captured: {basis}" if captured else "  measured: {basis}", basis=row.basis_measured),
        Sentence("  modelled: {basis}", basis=row.basis_modelled), *nothing,
    )  # fmt: skip


def _table(rows: Sequence[WhatIf]) -> tuple[Table | Lines, ...]:
    cells = tuple(
        (Cell(row.text), Cell(seconds(row.answer), row.answer),
         Cell(signed_seconds(row.answer - row.measured), row.answer - row.measured),
         Cell(_share(row), row.answer / row.measured - 1.0 if row.measured else 0.0), Cell(f"{row.touched:,}", float(row.touched)),
         Cell(say.clean(row.basis_measured)), Cell(say.clean(row.basis_modelled)))
        for row in rows
    )  # fmt: skip
    heads = ("step with it", "difference", "share", "tasks changed")
    columns = (Column("change"), *(Column(head, True) for head in heads), Column("measured"), Column("modelled"))
    table = Table("changes", columns, cells, detail=True)
    if untouched := [row.text for row in rows if row.touched == 0]:
        return (table, Lines((Sentence(NOTHING, changes=", ".join(untouched)),), detail=True))
    return (table,)
