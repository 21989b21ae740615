"""Copies what this rank prints from Python, for who looks at its loss: the stream's own file, bytes and terminal stay as they are.

A pipe between the job and its terminal would change its buffering and its progress bars, and would end it by SIGPIPE if its reader
died. So `write` of the two streams is replaced instead, inside a fence of its own, and lines go into a small file beside the ring.
What native code prints is not seen.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from windtunnel.fleet.starting import PRINTED_SUFFIX
from windtunnel.fleet.watch.patches import Patches

LARGEST = 1 << 19
"""Bytes of the file from which on it begins anew: who reads it looks every second."""
_LONGEST = 2048
"""Characters of a line that are kept."""
_ENDS = re.compile(r"[\r\n]+")
_OF_INTEREST = re.compile(r"loss|grad|\bnan\b|\binf\b", re.I)


class PrintedLines:
    """The copy. `everything`: all lines, for rules of the user's own; else those that may tell a loss or a gradient norm."""

    def __init__(self, ring: Path, patches: Patches, *, everything: bool = False) -> None:
        self._path, self._pid, self._everything = ring.with_suffix(PRINTED_SUFFIX), os.getpid(), everything
        self._file, self._size = -1, 0
        self._rest: dict[str, str] = {}
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if hasattr(stream, "__dict__") and hasattr(stream, "write"):
                patches.wrap(stream, "write", partial(self._around_write, name))
        patches.on_restore(self._close)

    def _around_write(self, name: str, original: Any) -> Any:
        def write(text: Any, /, *args: Any, **options: Any) -> Any:
            written = original(text, *args, **options)
            if isinstance(text, str) and os.getpid() == self._pid:
                self._take(name, text)
            return written

        return write

    def _take(self, name: str, text: str) -> None:
        *lines, rest = _ENDS.split(self._rest.get(name, "") + text)
        self._rest[name] = rest[-_LONGEST:]
        kept = [line[:_LONGEST] for line in lines if line and (self._everything or _OF_INTEREST.search(line))]
        if kept:
            self._append("".join(f"{line}\n" for line in kept).encode("utf-8", "replace"))

    def _append(self, raw: bytes) -> None:
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._size + len(raw) > LARGEST:
            os.ftruncate(self._file, 0)
            self._size = 0
        self._size += len(raw)
        os.write(self._file, raw)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
