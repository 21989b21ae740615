"""The head of a file, from which its format is recognised by content, not by name."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import read_start, read_text
from windtunnel.records.text import MARK

LARGEST = 256 * 2**20
"""Bytes. Published tables are some MiB."""

LARGEST_ROWS, LARGEST_UNPACKED = 10**7, 2**30
"""Limits of rows and bytes of a Parquet file's columns: a small file can unpack to any length."""


@dataclass(frozen=True)
class FileHead:
    """`columns` are the cells of a CSV's first line or the fields of a Parquet file; `document` is a JSON file's object."""

    path: Path
    columns: tuple[str, ...] = ()
    document: dict[str, Any] | None = None
    dataset: bool = False


def head_of(path: Path) -> FileHead:
    """Raises FileError for a file that cannot be read, is larger than 256 MiB, or is broken Parquet or JSON."""
    start = read_start(path, 2**16, LARGEST, "a file or folder of measurements")
    if start[:4] == b"PAR1":
        return _parquet(path)
    if start.lstrip()[:1] == b"{":
        return FileHead(path, document=document_of(path))
    if start.startswith(MARK.encode()):
        return FileHead(path, dataset=True)
    text = start.decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return FileHead(path, columns=tuple(cell.strip() for cell in next(csv.reader(lines[:1]), [])))


def _parquet(path: Path) -> FileHead:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from windtunnel.records.kernel_dataset import KEY

    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
        columns = tuple(schema.names)
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: names that are not UTF-8
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise FileError(str(path), "Parquet that is cut off or damaged", "a complete file", f"{reason.rstrip('.')}.") from error
    unpacked = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if metadata.num_rows > LARGEST_ROWS or unpacked > LARGEST_UNPACKED:
        raise FileError(
            str(path),
            f"{metadata.num_rows} rows, {unpacked} bytes when unpacked",
            f"at most {LARGEST_ROWS} rows and {LARGEST_UNPACKED} bytes",
        )
    return FileHead(path, columns=columns, dataset=KEY in (schema.metadata or {}))


def document_of(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty where another value is at the top; FileError for what is no JSON document."""
    try:
        data = json.loads(read_text(path, LARGEST))
    except FileError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileError(str(path), " ".join(str(error).split())[:100], "a complete JSON document") from None
    return data if isinstance(data, dict) else {}
