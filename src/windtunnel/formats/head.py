"""The first bytes of a file that a user named, from which the door tells what it is."""

from __future__ import annotations

import codecs
import csv
import re
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.base.files import GZIP, read_bytes, without_gz

SIZE = 256 * 1024
"""Bytes that a reader may look at to recognise its format."""

PARQUET = b"PAR1"

LONGEST_HEADER = 2**16
"""Characters of the first line of a table. Assumed."""

COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]")
"""Terminal colours and cursor moves."""
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_BAD = 0.02
"""Share of characters of a text that may be no UTF-8; bytes at random have a third or more. Assumed."""


@dataclass(frozen=True)
class Head:
    """The first `SIZE` bytes of a file, unpacked where it is gzip; `size` is that of the file as it lies on disk."""

    path: Path
    data: bytes
    size: int
    packed: bool = False  # the file is gzip
    encoding: str = ""  # what a byte order mark says; `data` is UTF-8 all the same

    @cached_property
    def text(self) -> str:
        """The bytes as text, without terminal colours, and without a character that the end cuts through. A few bytes that are not
        UTF-8 become U+FFFD, as in logs that several processes write at once; with more of them, or with zeros between them, this
        is no text: empty."""
        text = self._decode_text()
        return COLOURS.sub("", text) if "\x1b" in text else text

    def _decode_text(self) -> str:
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            if error.start >= len(self.data) - 4:
                return self.data[: error.start].decode("utf-8-sig")
        text = self.data.decode("utf-8-sig", "replace")
        return text if b"\0" not in self.data and text.count("\ufffd") <= len(text) * _BAD else ""

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.splitlines()

    @cached_property
    def table(self) -> Mapping[str, Any] | None:
        """The table that a configuration is: YAML and TOML by the file's name, JSON by its first character. None for other content,
        for a table that is broken, and where the head is not the whole file."""
        from windtunnel.spec.loading.files import SUFFIXES, parse_table  # here: a trace needs no noun of a job

        suffix = without_gz(self.path).suffix.lower()
        suffix = ".json" if self.text.lstrip()[:1] == "{" else suffix
        if not self.complete or suffix not in SUFFIXES:
            return None
        try:
            return parse_table(self.text, suffix, str(self.path))
        except FileError:
            return None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The cells of a CSV's first line, or the fields of a Parquet file."""
        if self.data[:4] == PARQUET:
            return self._parquet[0]
        first = next((line for line in self.lines if line.strip()), "")
        return () if len(first) > LONGEST_HEADER else tuple(cell.strip() for cell in next(csv.reader([first]), []))

    @property
    def parquet_keys(self) -> frozenset[bytes]:
        """Keys of the metadata of a Parquet file; none for another file."""
        return self._parquet[1] if self.data[:4] == PARQUET else frozenset()

    @cached_property
    def _parquet(self) -> tuple[tuple[str, ...], frozenset[bytes]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            schema = pq.read_metadata(self.path).schema.to_arrow_schema()
            return tuple(schema.names), frozenset(schema.metadata or {})
        except (OSError, ValueError, pa.ArrowException):
            return (), frozenset()

    @property
    def complete(self) -> bool:
        """Whether these are all bytes of the file."""
        return len(self.data) < SIZE

    def starts_json(self, *keys: str) -> bool:
        """Whether the text begins a JSON object and holds each of the keys, quoted and followed by a colon."""
        text = self.text
        return text.lstrip()[:1] == "{" and all(_has_key(text, key) for key in keys)


def head_of(path: Path) -> Head:
    """The head of a regular file. FileError for one that cannot be read or whose gzip stream is broken at once."""
    data, size = read_bytes(path, SIZE, "a file")
    if data[:2] != GZIP:
        encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "")
        if encoding == "utf-16":
            data = data.decode(encoding, "ignore").encode()
        return Head(path, data, size, encoding=encoding)
    try:
        return Head(path, unpack_head(data), size, packed=True)
    except zlib.error as error:
        raise FileError(str(path), f"a broken gzip stream ({error})", "a .gz file") from None


def unpack_head(packed: bytes) -> bytes:
    """The first bytes of gzip streams, which may end early: what their reader makes of that is its own business."""
    data = b""
    while packed[:2] == GZIP and len(data) < SIZE:
        stream = zlib.decompressobj(wbits=31)
        data += stream.decompress(packed, SIZE - len(data))
        packed = stream.unused_data
    return data


def _has_key(text: str, key: str) -> bool:
    at = text.find(f'"{key}"')
    while at >= 0:
        if text[at + len(key) + 2 :].lstrip()[:1] == ":":
            return True
        at = text.find(f'"{key}"', at + 1)
    return False
