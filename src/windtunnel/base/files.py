"""Text files that a user names: read with a limit, and refused with the reason.

A directory, a device, a file that is too large and bytes that are not UTF-8 each raise FileError with a message of their own.

Where the package's own data lie.

Lines of text files of any size, plain or gzip, that a user names, and the cells of a line.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import os
import stat
import tomllib
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError

MIB = 2**20
GZIP = b"\x1f\x8b"


def read_text(path: str | Path, limit: int, wanted: str = "a text file") -> str:
    """The text of a regular file of at most `limit` bytes, plain or gzip, without a byte order mark; `wanted` says in errors what
    the file should be.

    Raises FileError, also for directories, devices and pipes, which have no size to check and may never end.
    """
    try:
        return read_plain(path, limit, wanted).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise FileError(str(path)[:200], f"bytes that are not UTF-8 (at byte {error.start})", wanted) from None


def read_plain(path: str | Path, limit: int, wanted: str = "a file") -> bytes:
    """The bytes of a regular file, unpacked where it is gzip; at most `limit`. FileError as in `read_text`."""
    content, size = read_unpacked(path, limit + 1, wanted)
    if len(content) > limit:
        raise FileError(str(path)[:200], f"{max(size, limit + 1)} bytes", f"{wanted} of at most {limit} bytes")
    return content


def read_unpacked(path: str | Path, count: int, wanted: str) -> tuple[bytes, int]:
    """The first `count` bytes of a file, or of what is in it if it is gzip and shorter than that; and its size. FileError as
    `read_bytes`, and for a broken stream."""
    content, size = read_bytes(path, count, wanted)
    if content[:2] == GZIP and len(content) < count:
        content = _unpack_start(content, count, str(path)[:200], wanted)
    return content, size


def _unpack_start(packed: bytes, count: int, name: str, wanted: str) -> bytes:
    """The first `count` bytes of gzip streams, one after the other. FileError for one that is broken or cut off."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            return stream.read(count)
    except EOFError:
        raise FileError(name, "a gzip stream that is cut off", wanted) from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise FileError(name, f"a broken gzip stream ({error})", wanted) from None


def without_gz(path: str | Path) -> Path:
    """The path without `.gz` at its end: its suffix and stem tell what is packed in it."""
    path = Path(path)
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def read_start(path: str | Path, count: int, limit: int, wanted: str = "a file") -> bytes:
    """The first `count` bytes of a regular file of at most `limit` bytes. FileError as in `read_text`."""
    start, size = read_bytes(path, count, wanted)
    if size > limit:
        raise FileError(str(path), f"{size} bytes", f"{wanted} of at most {limit} bytes")
    return start


def read_bytes(path: str | Path, count: int, wanted: str = "a file") -> tuple[bytes, int]:
    """The first `count` bytes of a regular file, and the file's size. FileError for what is no regular file or cannot be read."""
    name = str(path)[:200]
    try:
        # A pipe that nobody writes to would block open() for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise FileError(name, "a directory", wanted, "Name a file in it.")
            if not stat.S_ISREG(status.st_mode):
                raise FileError(name, _kind(status.st_mode), wanted, "Save its content as a file first.")
            return file.read(count), status.st_size
    except IsADirectoryError:
        raise FileError(name, "a directory", wanted, "Name a file in it.") from None
    except OSError as error:
        reason = "no such file" if error.errno == errno.ENOENT else error.strerror or str(error)
        raise FileError(name, reason, wanted) from None
    except ValueError as error:  # a null byte in the name
        raise FileError(name, str(error), wanted) from None


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


@cache
def table_beside(module: str, name: str | None = None) -> dict[str, Any]:
    """Facts that a module reads: the TOML file beside it of its own name, or of another `name`. `module`: its `__file__`. No caller
    may change them."""
    path = Path(module).with_suffix(".toml") if name is None else Path(module).with_name(f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def words_by_meaning(table: dict[str, list[str]]) -> dict[str, str]:
    """Word -> what it means, of a table that lists words by their meaning."""
    return {word: meaning for meaning, words in table.items() for word in words}


CATALOG = Path(__file__).resolve().parents[1] / "catalog"
"""The catalogue: facts with their sources, one folder a kind."""


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
