"""Cells of a table of jobs: times, lengths of time, how a job ended, and what it held."""

from __future__ import annotations

import re
from datetime import UTC, datetime

OUTCOMES = {
    "completed": ("COMPLETED", "DONE", "PASS", "SUCCEEDED", "SUCCESS", "TERMINATED", "FINISHED"),
    "node failed": ("NODE_FAIL", "BOOT_FAIL"),
    "failed": ("FAIL", "OUT_OF_ME", "ERROR", "EXIT"),
    "stopped": ("CANCEL", "KILLED", "PREEMPTED", "TIMEOUT", "DEADLINE", "REVOKED", "STOPPED", "INTERRUPT"),
    "not ended": ("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "WAITING"),
}
"""How a job ended, by the begin of its state: sacct(1)'s job states, and those of published traces."""
NAN = float("nan")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_LENGTH = re.compile(r"(?:(\d{1,7})(?:-| days?,? ))?(?:(\d{1,7}):)?(\d{1,7}):(\d\d(?:\.\d{1,9})?)")
_TRES = re.compile(r"(?:^|,)(node|gres/gpu)(?::[^=,]*)?=(\d{1,9})")


def outcome_of(state: str) -> str:
    """One of `OUTCOMES`, or `other`; the state may be cut (`CANCELLED+`) or go on (`CANCELLED by 1003`)."""
    upper = state.strip().upper().replace("-", "_")
    return next((name for name, begins in OUTCOMES.items() if upper.startswith(begins)), "other")


def time_of(cell: str) -> float:
    """Seconds since 1970, a time without a zone taken as UTC, or a plain number as it is; NaN for what is none."""
    match = _ISO.match(cell)
    if match is not None:
        try:
            return datetime.fromisoformat(match[0]).replace(tzinfo=UTC).timestamp()
        except ValueError:
            return NAN
    return _number(cell)


def seconds_of(cell: str) -> float:
    """Seconds of `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS.mmm` or a number; NaN for what is none."""
    match = _LENGTH.fullmatch(cell.strip())
    if match is None:
        return _number(cell)
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def count_of(cell: str) -> float:
    """A whole or broken number; NaN for what is none."""
    return _number(cell)


def held_of(tres: str) -> dict[str, int]:
    """`node` and `gres/gpu` of a job's trackable resources, `cpu=12,node=1,gres/gpu:a100=2`."""
    held: dict[str, int] = {}
    for name, count in _TRES.findall(tres):
        held[name] = max(held.get(name, 0), int(count))
    return held


def _number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        return NAN
    return value if 0 <= value < 1e12 else NAN
