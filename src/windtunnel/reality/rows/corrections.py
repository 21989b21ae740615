"""Corrections of tables of runs: cells that their evidence shows to be wrong or that the source states elsewhere.

A table of corrections has the columns `id`, `column`, `old` and `new`, and may have `confidence` and `evidence`. A cell is set
where the row holds `old`, so that a table which is corrected already stays as it is. Corrections of low confidence are left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.reality.rows.table import OTHER_NAMES, TrainingRow, header_of, parse_cells, read_text

COLUMNS = frozenset(("id", "column", "old", "new"))
SUFFIX = "_corrections.csv"
"""End of the name of a table of corrections, which is read with the tables beside it."""

_MODULES = re.compile(r"selective\s*\(([^)]*)\)")
_KNOWN = frozenset(field.name for field in fields(TrainingRow))

Corrections = Mapping[str, Mapping[str, tuple[str, str]]]
"""Row -> column -> (old, new), both as text."""


def is_corrections(text: str) -> bool:
    """Whether a table's header is that of corrections."""
    return set(header_of(text)) >= COLUMNS


def corrections_beside(paths: Sequence[Path]) -> list[Path]:
    """Tables of corrections in the folders of `paths`, in the order of names, without those that are listed."""
    folders = dict.fromkeys(path.parent for path in paths)
    found = (path for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}")))
    return [path for path in found if path not in paths]


def read_corrections(paths: Sequence[Path]) -> dict[str, dict[str, tuple[str, str]]]:
    """The corrections in `paths`. FileError for an unknown column, or a table without the columns."""
    cells: dict[str, dict[str, tuple[str, str]]] = {}
    for path in paths:
        text = read_text(path)
        if not is_corrections(text):
            raise FileError(str(path), ", ".join(header_of(text)), f"the columns {', '.join(sorted(COLUMNS))}")
        for line in csv.DictReader(io.StringIO(text.lstrip("\ufeff"))):
            if (line.get("confidence") or "high").strip() == "low":
                continue
            column = OTHER_NAMES.get(line["column"], line["column"])
            if column not in _KNOWN:
                raise FileError(str(path), f"column {column!r} of row {line['id']}", "a column of a table of runs")
            cells.setdefault(line["id"], {})[column] = (line["old"].strip(), line["new"].strip())
    return cells


def with_corrections(row: TrainingRow, corrections: Corrections) -> tuple[TrainingRow, list[str]]:
    """The row with its corrections, and what was set."""
    wanted: dict[str, str] = {}
    for column, (old, new) in corrections.get(row.id, {}).items():
        have = getattr(row, column)
        if _as_text(have) != old or _as_text(have) == new:
            continue
        wanted[column] = new
        if column == "recompute" and (match := _MODULES.fullmatch(new)):
            wanted |= {"recompute": "selective", "recompute_modules": ";".join(re.split(r"[+,;]\s*", match.group(1)))}
        elif column == "recompute" and new not in ("none", "selective", "full"):
            del wanted["recompute"]  # a number of layers, which no column holds
    if not wanted:
        return row, []
    cells = {name: _as_text(value) for name, value in vars(row).items()} | wanted
    return parse_cells(cells), [f"{column} {value or 'blank'} (corrected)" for column, value in wanted.items()]


def _as_text(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
