"""Nsight's tables as columns, read in pieces.

Tables and columns as in NVIDIA's "Exported SQLite schema" of the Nsight Systems user guide. Exports of other versions lack tables
or columns: what is absent reads as -1.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import FileError
from windtunnel.formats.traces.kineto.columns import integers

PIECE = 100_000
_WANTED = "an export of `nsys export --type sqlite`"


@dataclass(frozen=True)
class Export:
    """An open file: its tables with their columns, and the texts of StringIds."""

    path: str
    connection: sqlite3.Connection
    tables: dict[str, frozenset[str]]
    texts: dict[int, str]
    broken: list[str]

    def columns(self, table: str, names: Sequence[str]) -> dict[str, Int64s]:
        """Whole numbers of some columns of a table [N]; empty where there is no such table, -1 for a column that it lacks."""
        known = self.tables.get(table, frozenset())
        present = [name for name in names if name in known]
        pieces: dict[str, list[Int64s]] = {name: [] for name in present}
        count = 0
        for rows in self._rows(table, present):
            count += len(rows)
            for name, values in zip(present, zip(*rows, strict=True), strict=True):
                pieces[name].append(integers([-1 if value is None else value for value in values]))
        found = {name: np.concatenate(parts) if parts else np.empty(0, np.int64) for name, parts in pieces.items()}
        return {name: found.get(name, np.full(count, -1, np.int64)) for name in names}

    def strings(self, table: str, name: str) -> list[str]:
        """The texts of a column; empty text for anything else."""
        if name not in self.tables.get(table, frozenset()):
            return []
        return [row[0] if isinstance(row[0], str) else "" for rows in self._rows(table, [name]) for row in rows]

    def _rows(self, table: str, names: Sequence[str]) -> Any:
        if not names:
            return
        try:
            cursor = self.connection.execute(f'SELECT {", ".join(names)} FROM "{table}"')  # names are checked against the schema
            while rows := cursor.fetchmany(PIECE):
                yield rows
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            self.broken.append(f"{table}: {error}")


def open_export(path: Path) -> Export:
    """An export, read only. FileError for a file that SQLite cannot read."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema=OFF")
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        wanted = [name for name in names if isinstance(name, str) and name.replace("_", "").isalnum()]
        tables = {name: frozenset(str(row[1]) for row in connection.execute(f'PRAGMA table_info("{name}")')) for name in wanted}
        export = Export(str(path), connection, tables, {}, [])
        ids = export.columns("StringIds", ("id",))["id"].tolist()
        export.texts.update(zip(ids, export.strings("StringIds", "value"), strict=False))
        return export
    except (sqlite3.Error, UnicodeError) as error:
        raise FileError(str(path), f"a file that SQLite cannot read ({error})", _WANTED) from None
