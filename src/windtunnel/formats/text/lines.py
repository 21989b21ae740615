"""Lines of a log, one at a time: gzip or plain, without terminal colours, in bounded memory whatever the file's size.

Facts of several files as one table: those of the first file stand alone, those of each further file under its name.

Text as it lies in people's folders: with a byte order mark, in UTF-16, or with a launcher's prefix before each line.

Lines of a log that hold one of some words, in their order; and, on demand, the lines that follow one.

A log is mostly other lines. Those of a piece are searched together by RE2 (pyarrow), as bytes; only what is found is decoded.
"""

from __future__ import annotations

import gzip
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.base.files import read_bytes
from windtunnel.formats.head import COLOURS, Head
from windtunnel.formats.reading import Context, Reading

LONGEST = 64 * 1024
"""Characters of a line that are kept: a progress bar may write megabytes without a line end."""

_CHUNK = 1024 * 1024
_ENDS = re.compile(r"\r?\n|\r")


class LogLines:
    """The lines of one file. `count` is complete, and `broken` has what could not be read, once the iteration has ended."""

    def __init__(
        self, path: Path, progress: Callable[[str, int, int], None] | None = None, broken: list[str] | None = None
    ) -> None:
        self.path = path
        self.count = 0
        self.broken: list[str] = [] if broken is None else broken
        self._progress = progress
        self._bad_bytes = 0

    def __iter__(self) -> Iterator[str]:
        """Lines without their ends. FileError for a file that cannot be opened; a stream that breaks off ends the lines."""
        rest = ""
        for chunk in self._chunks():
            text = chunk.decode("utf-8", "replace")
            self._bad_bytes += text.count("\ufffd")
            *lines, rest = _ENDS.split(rest + text)
            for line in lines:
                self.count += 1
                yield strip(line[:LONGEST])
            rest = rest[-LONGEST:]
        if rest:
            self.count += 1
            yield strip(rest)
        if self._bad_bytes:
            self.broken.append(f"{self.path}: {self._bad_bytes} bytes that are not UTF-8")

    def _chunks(self) -> Iterator[bytes]:
        """Pieces that end with a line end where there is one, so that no character and no \\r\\n is cut."""
        start, size = read_bytes(self.path, 2, "a log")
        try:
            with gzip.open(self.path) if start == b"\x1f\x8b" else self.path.open("rb") as file:
                kept = b""
                while True:
                    try:
                        data = file.read1(_CHUNK)  # what there is, so that a stream that breaks off gives all of it
                    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                        self.broken.append(f"{self.path}: the gzip stream breaks off after {self.count} lines ({error})")
                        break
                    if not data:
                        break
                    end = data.rfind(b"\n") + 1 or (len(data) if len(kept) > _CHUNK else 0)
                    if end:
                        yield kept + data[:end]
                        kept = data[end:]
                    else:
                        kept += data
                    if self._progress is not None:
                        self._progress(self.path.name, min(file.tell(), size), size)
                if kept:
                    yield kept
        except OSError as error:
            raise FileError(str(self.path), error.strerror or str(error), "a log that can be read") from None


def strip(line: str) -> str:
    """The line without terminal colours."""
    return COLOURS.sub("", line) if "\x1b" in line else line


def add_facts(facts: dict[str, Any], path: Path, own: dict[str, Any]) -> None:
    """Adds what one file says to what the files before it said."""
    facts.update({path.name: own} if facts else own)


def facts_of_logs(
    files: Sequence[Path], context: Context, read: Callable[[LogLines], dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """(facts, what could not be read) of text files, each through `read`, which goes over its lines."""
    facts: dict[str, Any] = {}
    broken: list[str] = []
    for path in files:
        add_facts(facts, path, read(LogLines(path, context.progress, broken)))
    return facts, broken


_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[\d+,\d+\]<std(?:out|err)>:\s?",  # mpirun --tag-output
        r"\[(?:default|rank|trainer)\d+\]: ?",  # torchrun
        r"\[(?:pod/)?[\w.-]+(?:/[\w.-]+)+\] ",  # kubectl logs --prefix
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) ",  # kubectl logs --timestamps, docker logs -t
        r"[\w.-]+ +\| ",  # docker compose
        r"(?!(?i:(?:\w{1,20}_)?(?:steps?|iter(?:ation)?|epoch|batch|update|loss)): )[A-Za-z][\w.-]*: (?=.)",  # pdsh, pssh
        r"\s*\d+:(?!\d\d:\d\d) ?",  # srun --label; no time of day
    )
)
_SHARE = 0.9
"""Of the lines of a head that must have the same kind of prefix. A head has more of them than of another program's lines."""
_LEAST = 3


def prefix_of(head: Head) -> re.Pattern[str] | None:
    """What stands before nearly all lines of a head that have text."""
    lines = [line for line in head.lines[:400] if line.strip()]
    if len(lines) < _LEAST:
        return None
    return next((p for p in _PREFIXES if sum(p.match(line) is not None for line in lines) >= _SHARE * len(lines)), None)


def without_prefix(head: Head, prefix: re.Pattern[str]) -> Head:
    """The head as the program wrote it."""
    return replace(head, data="".join(prefix.sub("", line, count=1) + "\n" for line in head.lines).encode())


def copy_decoded(path: Path, encoding: str, stack: ExitStack) -> Path:
    """A copy of the file in UTF-8 without a mark. FileError for bytes that the encoding does not have."""
    copy = _new_path(path, stack)
    try:
        with path.open(encoding=encoding, newline="") as source, copy.open("w", encoding="utf-8", newline="") as target:
            shutil.copyfileobj(source, target, _CHUNK)
    except UnicodeError as error:
        raise FileError(str(path), f"bytes that are not {encoding.removesuffix('-sig').upper()}", "text", f"{error}.") from None
    return copy


def copy_without_prefix(path: Path, prefix: re.Pattern[str], stack: ExitStack) -> Path:
    """A copy of the file without the prefix of its lines."""

    copy = _new_path(path, stack)
    with copy.open("w", encoding="utf-8") as target:
        target.writelines(prefix.sub("", line, count=1) + "\n" for line in LogLines(path))
    return copy


def name_originals(reading: Reading, copies: dict[Path, Path]) -> Reading:
    """The reading with the user's files in its notes, in place of their copies, and a note that says what was taken off."""
    notes = (reading.built, reading.ignored, reading.assumed, reading.broken)
    built, ignored, assumed, broken = (tuple(name_originals_in(note, copies) for note in listed) for listed in notes)
    off = "what stands before each line, or marks the encoding, was taken off"
    return replace(reading, built=built, ignored=(*ignored, off), assumed=assumed, broken=broken)


def name_originals_in(note: str, copies: dict[Path, Path]) -> str:
    """A note with the user's files in place of their copies."""
    for copy, path in copies.items():
        note = note.replace(str(copy), str(path))
    return note


def _new_path(path: Path, stack: ExitStack) -> Path:
    """A new path of the same name, since ranks may be told by it; it goes with the stack."""
    return Path(stack.enter_context(TemporaryDirectory(prefix="windtunnel-"))) / path.name.removesuffix(".gz")


_SMALL = 256 * 1024
"""Bytes of a piece below which Python's own search is faster than pyarrow is loaded."""
_MARKS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]")


class WordLines(LogLines):
    """The lines of one file that hold a word. While `following` is set, every next line comes too.

    `count` counts all lines; it and `broken` are complete once the iteration has ended, as with `LogLines`.
    """

    def __init__(
        self,
        path: Path,
        words: Sequence[str],
        progress: Callable[[str, int, int], None] | None = None,
        broken: list[str] | None = None,
    ) -> None:
        super().__init__(path, progress, broken)
        self.following = False
        self._words = tuple(word.encode() for word in words)

    def __iter__(self) -> Iterator[str]:
        """Lines without their ends. FileError for a file that cannot be opened; a stream that breaks off ends the lines."""
        rest = b""
        for chunk in self._chunks():
            if not chunk.isascii():
                self._bad_bytes += chunk.decode("utf-8", "replace").count("\ufffd")
            data = rest + chunk
            if b"\r" in data:
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            if b"\x1b" in data:
                data = _MARKS.sub(b"", data)
            end = data.rfind(b"\n") + 1
            yield from self._of(data[:end])
            rest = data[end:][-LONGEST:]
        if rest:
            yield from self._of(rest + b"\n")
        if self._bad_bytes:
            self.broken.append(f"{self.path}: {self._bad_bytes} bytes that are not UTF-8")

    def _of(self, data: bytes) -> Iterator[str]:
        """The wanted lines of a piece, which ends with a line end."""
        if not data:
            return
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
        starts = np.concatenate(([0], ends))
        self.count += len(ends)
        nearest = 0
        for at in self._find_lines(data, starts):
            while self.following and nearest < at:
                yield _text(data, starts, nearest)
                nearest += 1
            nearest = at + 1
            yield _text(data, starts, at)
        while self.following and nearest < len(ends):
            yield _text(data, starts, nearest)
            nearest += 1

    def _find_lines(self, data: bytes, starts: Any) -> list[int]:
        """Numbers of the lines with a word."""
        if len(data) < _SMALL:
            found: set[int] = set()
            for word in self._words:
                at = data.find(word)
                while at >= 0:
                    line = int(np.searchsorted(starts, at, side="right")) - 1
                    found.add(line)
                    at = data.find(word, int(starts[line + 1]))
            return sorted(found)
        import pyarrow as pa
        from pyarrow import compute as pc

        lines = pa.Array.from_buffers(
            pa.large_binary(), len(starts) - 1, [None, pa.py_buffer(starts.astype(np.int64)), pa.py_buffer(data)]
        )
        pattern = "|".join(re.escape(word.decode()) for word in self._words)
        mask = pc.match_substring_regex(lines, pattern)
        return [int(at) for at in np.flatnonzero(mask.to_numpy(zero_copy_only=False))]


def _text(data: bytes, starts: Any, at: int) -> str:
    begin, end = int(starts[at]), int(starts[at + 1]) - 1
    return data[begin : min(end, begin + LONGEST)].decode("utf-8", "replace")
