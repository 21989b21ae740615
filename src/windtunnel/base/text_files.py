"""Lines of text files of any size, plain or gzip, that a user names, and the cells of a line."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.base.files import read_bytes

LONGEST = 2**20
"""Characters of a line beyond which a file is not text of lines."""


def lines_of(path: Path, wanted: str, broken: list[str] | None = None) -> Iterator[str]:
    """Lines without their ends, read as they are asked for.

    Bytes that are not UTF-8 are replaced. FileError for a file that cannot be read, a line beyond `LONGEST` and, without `broken`,
    a gzip stream that ends early; with it the lines before are given, and what is missing is told there.
    """
    start, _ = read_bytes(path, 2, wanted)
    try:
        with gzip.open(path, "rb") if start == b"\x1f\x8b" else open(path, "rb") as binary:
            text = io.TextIOWrapper(binary, encoding="utf-8-sig", errors="replace")
            while line := text.readline(LONGEST):
                if len(line) >= LONGEST:
                    raise FileError(str(path), f"a line of {LONGEST} characters or more", wanted)
                yield line.rstrip("\r\n")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or "the file ends early"
        if broken is None:
            raise FileError(str(path), reason, wanted) from None
        broken.append(f"{path}: {reason}; what stands before it was read")


def cells_of(line: str, delimiter: str = ",") -> list[str]:
    """Cells of one line of a table, as they stand, quoted cells without their quotes. None of a line with a cell that is no cell:
    above the 131,072 characters that `csv` takes."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
