"""A sheet as CSV: its figures, then its tables, each under its name. Numbers are in SI units beside the words."""

from __future__ import annotations

import csv
import io
from typing import Any

from windtunnel.sheet.blocks import Folded, Sheet, Table
from windtunnel.sheet.sentence import translate

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def sheet_csv(sheet: Sheet, language: str = "en") -> str:
    """The text of the file; a blank line stands between tables."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["figure", "name", "value", "unit", "relative_error", "text"])
    for figure in sheet.figures:
        error = "" if figure.error is None else figure.error
        value = "" if figure.value is None else figure.value
        row = [figure.key, translate(figure.label, language), value, figure.unit, error, translate(figure.words(), language)]
        writer.writerow([guard_cell(cell) for cell in row])
    for table in tables_of(sheet):
        writer.writerow([])
        writer.writerow([table.key])
        for row in table_rows(table, language):
            writer.writerow(row)
    return out.getvalue()


def tables_of(sheet: Sheet) -> list[Table]:
    """The tables of all sections, folded ones too."""
    blocks = [inner for section in sheet.sections for block in section.blocks
              for inner in (block.blocks if isinstance(block, Folded) else (block,))]  # fmt: skip
    return [block for block in blocks if isinstance(block, Table)]


def table_rows(table: Table, language: str = "en") -> list[list[Any]]:
    """Heads and rows: what is shown, and behind it the numbers of columns that hold numbers."""
    numbers = [place for place, column in enumerate(table.columns) if column.number]
    heads = [translate(column.head, language) for column in table.columns]
    rows: list[list[Any]] = [[*heads, *(f"{heads[place]}, number" for place in numbers)]]
    for cells in table.rows:
        texts = [guard_cell(translate(cell.text, language)) for cell in cells]
        rows.append([*texts, *("" if (value := cells[place].value) is None else value for place in numbers)])
    return rows


def guard_cell(value: Any) -> Any:
    """A cell of CSV; a text that a spreadsheet would run as a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
