"""The beginning of a file: enough to tell a format by its content, whatever its name."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.records.text import MARK

LARGEST = 256 * 2**20
"""Bytes. Published tables are some MiB."""


@dataclass(frozen=True)
class FileHead:
    """`columns` are the cells of a CSV's first line or the fields of a Parquet file; `document` is a JSON file's object."""

    path: Path
    columns: tuple[str, ...] = ()
    document: dict[str, Any] | None = None
    dataset: bool = False


def head_of(path: Path) -> FileHead:
    """Raises FileError for a file that cannot be read, is larger than 256 MiB, or is broken Parquet or JSON."""
    try:
        if path.stat().st_size > LARGEST:
            raise FileError(str(path), f"{path.stat().st_size} bytes", f"a file of at most {LARGEST} bytes")
        with path.open("rb") as stream:
            start = stream.read(2**16)
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a readable file or folder of measurements") from None
    if start[:4] == b"PAR1":
        return _parquet(path)
    if start.lstrip()[:1] == b"{":
        return FileHead(path, document=_document(path))
    if start.startswith(MARK.encode()):
        return FileHead(path, dataset=True)
    text = start.decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return FileHead(path, columns=tuple(cell.strip() for cell in next(csv.reader(lines[:1]), [])))


def _parquet(path: Path) -> FileHead:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from windtunnel.records.dataset import KEY

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise FileError(
            str(path), "Parquet that is cut off or damaged", "a complete file", f"{str(error).splitlines()[0].rstrip('.')}."
        ) from error
    return FileHead(path, columns=tuple(schema.names), dataset=KEY in (schema.metadata or {}))


def _document(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, UnicodeDecodeError) as error:
        raise FileError(str(path), " ".join(str(error).split())[:100], "a complete JSON document") from None
    return data if isinstance(data, dict) else {}
