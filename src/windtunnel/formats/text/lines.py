"""Lines of a log, one at a time: gzip or plain, without terminal colours, in bounded memory whatever the file's size.

Facts of several files as one table: those of the first file stand alone, those of each further file under its name.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import read_bytes
from windtunnel.formats.head import COLOURS
from windtunnel.formats.reading import Context

LONGEST = 64 * 1024
"""Characters of a line that are kept: a progress bar may write megabytes without a line end."""

_CHUNK = 1024 * 1024
_ENDS = re.compile(r"\r?\n|\r")


class LogLines:
    """The lines of one file. `count` and `broken` are complete once the iteration has ended."""

    def __init__(self, path: Path, progress: Callable[[str, int, int], None] | None = None) -> None:
        self.path = path
        self.count = 0
        self.broken: list[str] = []
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
        lines = LogLines(path, context.progress)
        own = read(lines)
        broken.extend(lines.broken)
        add_facts(facts, path, own)
    return facts, broken
