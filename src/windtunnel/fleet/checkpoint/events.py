"""Event log of saves and loads of a rank, and what is said on the terminal."""

from __future__ import annotations

import sys
from contextlib import suppress

from windtunnel.base.text import clean
from windtunnel.fleet.event_log import append_event


def write_event(
    rank: int, event: str, step: int, *, blocking_seconds: float = 0.0, seconds: float = 0.0, bytes: int = 0,
    source: str = "storage", why: str = "",
) -> None:  # fmt: skip
    """`fleet.event_log.append_event`. A log that cannot be written, as on a full disk, fails no save."""
    with suppress(OSError):
        append_event(
            rank, event, step, blocking_seconds=blocking_seconds, seconds=seconds, bytes=bytes, source=source, why=why
        )  # fmt: skip


def tell(text: str) -> None:
    """A line on standard error, for the person who started the job."""
    with suppress(OSError, ValueError):
        print(f"windtunnel fleet: {clean(text)}", file=sys.stderr, flush=True)
