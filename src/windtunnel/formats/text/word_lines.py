"""Lines of a log that hold one of some words, in their order; and, on demand, the lines that follow one.

A log is mostly other lines. Those of a piece are searched together by RE2 (pyarrow), as bytes; only what is found is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.formats.text.lines import LONGEST, LogLines

_SMALL = 256 * 1024
"""Bytes of a piece below which Python's own search is faster than pyarrow is loaded."""
_MARKS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]")


class WordLines(LogLines):
    """The lines of one file that hold a word. While `following` is set, every next line comes too.

    `count` counts all lines; it and `broken` are complete once the iteration has ended, as with `LogLines`.
    """

    def __init__(self, path: Path, words: Sequence[str], progress: Callable[[str, int, int], None] | None = None) -> None:
        super().__init__(path, progress)
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
