"""The audit log as CSV: who asked what, when, from where, what came of it and how long that took."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TextIO

from windtunnel.base.errors import SpecError
from windtunnel.service.store.shelf import AuditRow

HEAD = ("time", "who", "verb", "what", "from", "status", "seconds")
_ASKS = ("POST /api/v1/", "PAGE ")


def write_audit(rows: Iterable[AuditRow], file: TextIO) -> int:
    """Writes rows with their head; times in UTC, seconds empty where they are not known. Returns how many."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(HEAD)
    number = 0
    for row in rows:
        moment = datetime.fromtimestamp(row.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        seconds = "" if row.seconds is None else f"{row.seconds:.3f}"
        table.writerow((moment, row.who, verb_of(row.what), row.what, row.came_from, row.status, seconds))
        number += 1
    return number


def verb_of(what: str) -> str:
    """The verb of a question, over the API or on the page; '' for other requests."""
    for start in _ASKS:
        if what.startswith(start):
            return what.removeprefix(start).replace("/", " ")
    return ""


def read_moment(option: str, text: str | None) -> float | None:
    """Seconds since 1970 of a date, or a date and time, in UTC unless it says otherwise. SpecError for other text."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise SpecError(option, text, "a date, or a date and time in UTC, such as 2026-11-28 or 2026-11-28T18:00") from error
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
