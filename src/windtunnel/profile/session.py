"""A measurement that is written continuously, so that it can be stopped at any time and resumed.

One file is one device in one environment: a session that resumes another device's file, or another driver's, is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.records import About, Dataset, dataset, read, write
from windtunnel.records.schema import NAMES

IDENTITY = tuple(name for name in NAMES[: NAMES.index("accumulate") + 1] if name not in ("kernel", "model"))
"""Columns that identify a measurement; `model` only names the first model with the shape."""

SAME = ("gpu", "device", "driver", "libraries")
"""Fields of `About` that a resumed file shares with this run."""

Report = Callable[[float], bool]
"""Called with the finished share; returns whether to stop."""

EVERY = 10.0
"""s between two writes."""


def key_of(row: Mapping[str, Any]) -> str:
    """The identity of a row as one line; equal for the same case in any run."""
    return "|".join("" if row.get(name) is None else str(row[name]) for name in IDENTITY)


def is_same_device(one: About, other: About) -> bool:
    """Whether two profiles are of the same device in the same environment."""
    return all(getattr(one, name) == getattr(other, name) for name in SAME)


class Session:
    """Rows by key, and their file: a new one, or an existing one (`resume`).

    Raises FileError if the file exists without `resume`, SpecError if it was measured on another device or environment.
    """

    def __init__(self, path: str | Path, about: About, resume: bool = False) -> None:
        self.path, self.about = Path(path), about
        self.rows: dict[str, dict[str, Any]] = {}
        self.dirty = False
        self.written = time.monotonic()
        if self.path.exists():
            if not resume:
                raise FileError(str(path), "a file that exists", "a new file", "Add --resume to go on with it.")
            self._take_up(read(self.path))

    def has_row(self, key: str) -> bool:
        """Whether there is a row with this key."""
        return key in self.rows

    def add(self, row: Mapping[str, Any]) -> str:
        """Adds a row, or replaces an earlier one of the same key; writes the file if the last write was `EVERY` seconds ago.

        A bad row does not affect the others. A time that is impossible on this device is kept as open, with the reason; a row
        that cannot be in a dataset is dropped, and the reason is returned (else an empty text).
        """
        stored = dict(row)
        try:
            self._checked_dataset([stored])
        except SpecError as error:
            stored = {**stored, "status": "open", "note": str(error)}
            try:
                self._checked_dataset([stored])
            except SpecError:
                return str(error)
        self.rows[key_of(stored)] = stored
        self.dirty = True
        if time.monotonic() - self.written > EVERY:
            self.save()
        return ""

    def save(self) -> None:
        """Writes all rows to a temporary file and replaces the file atomically. Writes nothing without rows."""
        if not self.rows or not self.dirty:
            return
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            write(self.dataset(), beside)
            os.replace(beside, self.path)
        except OSError as error:
            raise FileError(str(self.path), error.strerror or str(error), "a file that can be written") from error
        finally:
            beside.unlink(missing_ok=True)
        self.written, self.dirty = time.monotonic(), False

    def dataset(self) -> Dataset:
        """The checked dataset of all rows so far."""
        return self._checked_dataset(list(self.rows.values()))

    def _checked_dataset(self, rows: list[dict[str, Any]]) -> Dataset:
        return dataset(replace(self.about, datasheet=raise_rates(self.about.datasheet, rows)), rows)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.save()

    def _take_up(self, earlier: Dataset) -> None:
        if not is_same_device(earlier.about, self.about):
            name = next(name for name in SAME if getattr(earlier.about, name) != getattr(self.about, name))
            raise SpecError(
                f"{self.path}: about.{name}",
                getattr(earlier.about, name),
                f"{getattr(self.about, name)!r}, what is measured now",
                "Write into another file; two profiles are never mixed.",
            )
        self.about = replace(self.about, datasheet=earlier.about.datasheet or self.about.datasheet)
        self.rows = {key_of(row): row for row in earlier.rows()}


def raise_rates(stated: Mapping[str, float], rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """A measured data sheet in which no rate is below that of a row of the dataset."""
    sheet = dict(stated)
    if not sheet:
        return sheet
    for row in rows:
        if row.get("status") != "ok" or not row.get("seconds"):
            continue
        key, work, moved = f"peak.{row['dtype']}", row.get("flops") or 0.0, row.get("bytes") or 0.0
        if work:
            sheet[key] = max(sheet.get(key, 0.0), work / row["seconds"])
        if moved > 4 * sheet.get("l2", 0.0):
            sheet["memory_bandwidth"] = max(sheet.get("memory_bandwidth", 0.0), moved / row["seconds"])
    return sheet
