"""How a rank's process ended, as a line of text that travels with its records: the name of a row of kind `Section.END`."""

from __future__ import annotations

from enum import StrEnum

from windtunnel.base.text import clean, redact

LONGEST = 480
"""Characters of a line."""


class EndKind(StrEnum):
    """What a line tells; its first word."""

    RAISED = "raised"  # an exception that nobody caught ended the process
    THREAD = "thread"  # a thread ended so; the process lives
    IGNORED = "ignored"  # an exception in a handler of `atexit`: the process ends, with the status it had
    EXIT = "exit"  # the process ended by itself, with this status
    SIGNAL = "signal"  # a signal ended it


def end_line(kind: EndKind, text: str) -> str:
    """The line, printable and not longer than `LONGEST`."""
    words = " ".join(" ".join(map(clean, redact(text).splitlines())).encode("utf-8", "replace").decode().split())
    return f"{kind}: {words}"[:LONGEST]


def parse_end(line: str) -> tuple[EndKind, str] | None:
    """Kind and text of a line; None for one that is not an end's."""
    kind, colon, text = line.partition(": ")
    known = next((one for one in EndKind if one == kind), None)
    return (known, text) if colon and known is not None else None
