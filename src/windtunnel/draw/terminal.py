"""A sheet in the terminal: a headline, sentences behind their labels or under titles, tables, bars."""

from __future__ import annotations

from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Advices, Block, Cell, Lines, Section, Shares, Sheet, Table, say_in
from windtunnel.sheet.sentence import translate

LABEL = 10
"""Columns of a label."""
BAR = 24
"""Columns of a bar in a table."""
WIDE = 110
"""Columns from which on a window is not narrow."""
_STYLES = {"warn": "yellow", "bad": "red", "soft": "dim"}


def print_sheet(sheet: Sheet, console: Console | None = None, language: str = "en") -> None:
    """Print what a sheet shows in the terminal."""
    out = console or Console()
    if sheet.headline:
        out.print(Text(translate(sheet.headline, language), style="bold"))
    for section in sheet.sections:
        _print_section(section, out, sheet.titled, language)


def _print_section(section: Section, out: Console, titled: bool, language: str) -> None:
    shown = [block for block in section.blocks if not block.detail]
    if not shown:
        return
    if titled and section.title:
        out.print(Text())
        out.print(Text(translate(section.title, language), style="bold underline"))
    for block in shown:
        _print_block(block, out, language)


def _print_block(block: Block, out: Console, language: str) -> None:
    if isinstance(block, Lines):
        for line in block.lines:
            label = translate(block.label, language)
            text = f"  {label:<{LABEL - 1}} {translate(line, language)}" if label else f"  {translate(line, language)}"
            out.print(Text(text, style=_STYLES.get(block.mood, "")))
    elif isinstance(block, Table):
        out.print(table_text(block, out.width, language))
    elif isinstance(block, Shares):
        total = sum(part.value for part in block.parts) or 1.0
        for part in block.parts:
            share = part.value / total
            row = f"  {translate(part.name, language):<24} {say_in(block.unit, part.value):>12} {say.percent(share):>8}  "
            out.print(Text(row).append("█" * max(1, round(BAR * share)), style=part.colour if part.colour.startswith("#") else ""))
    elif isinstance(block, Advices):
        for number, advice in enumerate(block.advice, start=1):
            price = f" ({translate(advice.price, language)})" if advice.price else ""
            out.print(Text(f"  {number}. {translate(advice.what, language)}: {translate(advice.gain, language)}{price}"))


def table_text(table: Table, width: int, language: str = "en") -> RichTable:
    """A table for a window of `width` columns; columns that it leaves out there are missing."""
    narrow = ("pages", "narrow") if width < WIDE else ("pages",)
    kept = [number for number, column in enumerate(table.columns) if column.left_out not in narrow]
    heads: list[tuple[str, JustifyMethod]] = [
        (translate(table.columns[number].head, language), "right" if table.columns[number].number else "left") for number in kept
    ]
    made = listing(*heads, indent=2)
    for count, row in enumerate(table.rows, start=1):
        last = table.bold_last and count == len(table.rows)
        made.add_row(*(_cell_text(row[number], language) for number in kept), style="bold" if last else "")
    return made


def _cell_text(cell: Cell, language: str) -> Text:
    if cell.bar is None:
        return Text(translate(cell.text, language))
    begin, end = (round(BAR * min(max(share, 0.0), 1.0)) for share in cell.bar)
    return Text(" " * min(begin, BAR - 1) + "█" * max(1, end - begin))
