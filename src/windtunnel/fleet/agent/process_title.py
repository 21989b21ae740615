"""The command line under which `ps`, `top`, `pgrep` and py-spy show this process. A rank that a keeper forks shows its script's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOM = 2000
"""Bytes that a keeper's last argument keeps free for the command line of its ranks."""
_PR_SET_MM, _PR_SET_MM_ARG_END = 35, 9


def room_argument() -> str:
    """A last argument that says nothing; its bytes are overwritten by `set_title`."""
    return " " * ROOM


def set_title(argv: Sequence[str], final: bool = True) -> bool:
    """Writes `argv` over this process's own command line, cut to the room that there is; whether the system allows it. `final`:
    the rest of the room is given up where the system lets this user do so, else it is filled with zeros."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if end - start < 2:
            return False
        text = b"\0".join(word.encode(errors="surrogateescape") for word in argv)[: end - start - 1] + b"\0"
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))
        if final:
            ctypes.CDLL(None).prctl(_PR_SET_MM, _PR_SET_MM_ARG_END, ctypes.c_ulong(start + len(text)), 0, 0)
        return True
    return False
