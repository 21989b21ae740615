"""Results of the readers of published measurements, and of a finished import.

How a dataset of windtunnel is told from other tables.

Checks of a file of measurements before it is read: its size, and whether it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.files import read_start, read_text
from windtunnel.formats.head import Head, head_of
from windtunnel.records import Dataset
from windtunnel.records.kernel_dataset import KEY, MARK

Row = dict[str, Any]
"""By the columns of `records.schema`; a missing key is null."""

LARGEST = 10**15
"""Upper limit of a size in a measured kernel."""


class Bad(NamedTuple):
    """An invalid line of a file, with the reason."""

    where: str
    reason: str


@dataclass(frozen=True)
class Found:
    """Rows of one GPU. `gpu`: the one that the files state, if any; `called`: a name in them that may contain a GPU's.

    `about` are other fields of `records.About`.
    """

    rows: list[Row]
    gpu: str | None = None
    called: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    bad: tuple[Bad, ...] = ()


@dataclass(frozen=True)
class KernelTimes:
    """The outcome of an import: format, dataset, ignored content, assumptions.

    `bad` is empty unless the caller requested the valid rows of a damaged file.
    """

    format: str
    data: Dataset
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    bad: tuple[Bad, ...] = ()


def label(path: Path) -> str:
    """The last three parts of a path: enough to find the file, without folders of the machine."""
    return "/".join(path.parts[-3:]).lstrip("/")


def is_dataset(head: Head) -> bool:
    """Whether a file is a dataset of windtunnel, as Parquet or as CSV."""
    return KEY in head.parquet_keys or head.data.startswith(MARK.encode())


LARGEST_FILE = 256 * 2**20
"""Bytes. Published tables are some MiB."""

LARGEST_ROWS, LARGEST_UNPACKED = 10**7, 2**30
"""Limits of rows and bytes of a Parquet file's columns: a small file can unpack to any length."""


def checked_head(path: Path) -> Head:
    """The head of a file. FileError for one that cannot be read, is larger than 256 MiB, or is broken Parquet or JSON."""
    start = read_start(path, 2**16, LARGEST_FILE, "a file or folder of measurements")
    if start[:4] == b"PAR1":
        _check_parquet(path)
    elif start.lstrip()[:1] == b"{":
        document_of(path)
    return head_of(path)


def _check_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        metadata.schema.to_arrow_schema()
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


def document_of(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty where another value is at the top; FileError for what is no JSON document."""
    try:
        data = json.loads(read_text(path, LARGEST_FILE))
    except FileError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileError(str(path), " ".join(str(error).split())[:100], "a complete JSON document") from None
    return data if isinstance(data, dict) else {}
