"""A sheet whose part in the terminal is lines that never break, as plain text: the terminal's drawer takes longer to load. A sheet
as CSV: its figures, then its tables, each under its name. Numbers are in SI units beside the words. Figures of a sheet in an
answer's JSON.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from windtunnel.sheet.blocks import Folded, Lines, Sheet, Table
from windtunnel.sheet.sentence import translate


def plain_text(sheet: Sheet, language: str = "en") -> str | None:
    """The text; None where the terminal shows anything else."""
    shown = [block for section in sheet.sections for block in section.blocks if not block.detail]
    lines = [line for block in shown if isinstance(block, Lines) and block.mood == "code" for line in block.lines]
    plain = not (sheet.headline or sheet.cards) and all(isinstance(block, Lines) and block.mood == "code" for block in shown)
    return "\n".join(translate(line, language) for line in lines) if plain and lines else None


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


def with_figures(table: Mapping[str, Any], sheet: Sheet) -> dict[str, Any]:
    """`table`, with each figure of the sheet that it lacks under the figure's key; one of a part that it has is in that part."""
    return {**table, **{figure.key: figure.value for figure in sheet.figures if figure.key.split(".")[0] not in table}}
