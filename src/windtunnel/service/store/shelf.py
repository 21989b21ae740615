"""Reading what is kept: answers, jobs and the audit log; and making room. The audit log as CSV: who asked what, when, from where,
what came of it and how long that took.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.service.store.blobs import STALE_SECONDS, Blobs
from windtunnel.service.store.database import Database, active, answers, audit, jobs, token_uses
from windtunnel.service.store.queue import ENDED, KeptAnswer

USED_SECONDS = 60.0
"""How exactly the last use of an answer is known: each reading is not a write."""
MOST_ENDED = 100_000
"""Jobs that have ended and are still listed."""


@dataclass(frozen=True)
class JobRow:
    """A job as it is listed. Times in seconds since 1970; `position`: jobs before it, where it waits."""

    id: str
    key: str
    verb: str
    state: str
    asker: str
    progress: float | None
    doing: str | None
    log: str
    error: Mapping[str, Any] | None
    attempt: int
    created: float
    started: float | None
    ended: float | None
    command: str
    position: int | None = None


@dataclass(frozen=True)
class EndedJob:
    """What came of a job. Times in seconds since 1970, `started` None where no worker had it; `kind`: of its error, or ''."""

    id: str
    verb: str
    state: str
    created: float
    started: float | None
    ended: float
    kind: str


@dataclass(frozen=True)
class AuditRow:
    """A line of the audit log, before it is kept."""

    at: float
    who: str
    what: str
    came_from: str
    status: int
    seconds: float | None = None


class Shelf:
    """What a service has kept in `database` and `blobs`."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self.database, self.blobs = database, blobs

    def answer(self, key: str) -> KeptAnswer | None:
        """A kept answer; its use is noted."""
        with self.database.reading() as connection:
            row = connection.execute(select(answers).where(answers.c.key == key)).first()
        if row is None:
            return None
        if row.used < time.time() - USED_SECONDS:
            with self.database.transaction() as connection:
                connection.execute(update(answers).where(answers.c.key == key).values(used=self.database.now(connection)))
        return KeptAnswer(
            row.key,
            row.verb,
            row.command,
            row.version,
            row.body,
            row.media,
            json.loads(row.artefacts),
            row.log,
            row.seconds,
            row.bytes,
        )

    def forget(self, key: str) -> None:
        """Drops an answer whose bytes are gone or damaged: it is worked out again when it is asked for."""
        with self.database.transaction() as connection:
            connection.execute(delete(answers).where(answers.c.key == key))

    def job(self, job: str) -> JobRow | None:
        """A job by its id."""
        with self.database.reading() as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == job)).first()
            if row is None:
                return None
            position = None
            if row.state == "queued":
                before = (jobs.c.state == "queued") & (
                    (jobs.c.short > row.short) | ((jobs.c.short == row.short) & (jobs.c.number < row.number))
                )
                position = int(connection.execute(select(func.count()).select_from(jobs).where(before)).scalar_one())
        return _job(row, position)

    def jobs(self, state: str | None = None, before: int | None = None, limit: int = 50) -> tuple[list[JobRow], int | None]:
        """Jobs, the newest first, and the number to ask for the next page with (None: there is none)."""
        asked = select(jobs).order_by(jobs.c.number.desc()).limit(limit + 1)
        if state is not None:
            asked = asked.where(jobs.c.state == state)
        if before is not None:
            asked = asked.where(jobs.c.number < before)
        with self.database.reading() as connection:
            rows = connection.execute(asked).all()
        return [_job(row, None) for row in rows[:limit]], rows[limit - 1].number if len(rows) > limit else None

    def ended_jobs(self, ids: Sequence[str]) -> list[EndedJob]:
        """Those of these jobs that have ended."""
        wanted = select(jobs.c.id, jobs.c.verb, jobs.c.state, jobs.c.created, jobs.c.started, jobs.c.ended, jobs.c.error)
        with self.database.reading() as connection:
            rows = connection.execute(wanted.where(jobs.c.id.in_(list(ids)) & jobs.c.state.in_(ENDED))).all()
        kinds = [str(json.loads(row.error).get("kind", "")) if row.error is not None else "" for row in rows]
        return [
            EndedJob(row.id, row.verb, row.state, row.created, row.started, row.ended, kind)
            for row, kind in zip(rows, kinds, strict=True)
        ]

    def job_of(self, key: str) -> str | None:
        """The job of a question that waits or runs."""
        with self.database.reading() as connection:
            found = connection.execute(select(active.c.job).where(active.c.key == key)).scalar()
        return None if found is None else str(found)

    def counts(self) -> dict[str, int]:
        """Jobs by state, and answers."""
        with self.database.reading() as connection:
            rows = connection.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state)).all()
            kept = connection.execute(select(func.count()).select_from(answers)).scalar_one()
        return {**{str(state): int(number) for state, number in rows}, "answers": int(kept)}

    def note(self, rows: Sequence[AuditRow]) -> None:
        """Adds to the audit log."""
        with self.database.transaction() as connection:
            connection.execute(
                insert(audit),
                [
                    {"at": r.at, "who": r.who[:64], "what": r.what[:200], "came_from": r.came_from[:64], "status": r.status,
                     "seconds": r.seconds}
                    for r in rows
                ],
            )  # fmt: skip

    def audit_rows(
        self, who: str | None = None, verb: str | None = None, since: float | None = None, until: float | None = None
    ) -> Iterator[AuditRow]:
        """The audit log in its order. `who`: of one name; `verb`: questions of one verb; `since`, `until`: seconds since 1970, the
        second one not included."""
        wanted = select(audit).order_by(audit.c.at, audit.c.number)
        if who is not None:
            wanted = wanted.where(audit.c.who == who)
        if verb is not None:
            wanted = wanted.where(audit.c.what.in_((f"POST /api/v1/{verb.replace(' ', '/')}", f"PAGE {verb}")))
        if since is not None:
            wanted = wanted.where(audit.c.at >= since)
        if until is not None:
            wanted = wanted.where(audit.c.at < until)
        with self.database.reading() as connection:
            for row in connection.execute(wanted):
                yield AuditRow(row.at, row.who, row.what, row.came_from, row.status, row.seconds)

    def note_uses(self, uses: Mapping[str, float]) -> None:
        """Keeps when tokens, by their hash, were last used."""
        with self.database.transaction() as connection:
            for token, used in uses.items():
                changed = connection.execute(update(token_uses).where(token_uses.c.token == token).values(used=used))
                if not changed.rowcount:
                    dialect: Any = sqlite if self.database.sqlite else postgresql
                    connection.execute(dialect.insert(token_uses).values(token=token, used=used).on_conflict_do_nothing())

    def uses(self) -> dict[str, float]:
        """When each token, by its hash, was last used, to about a minute."""
        with self.database.reading() as connection:
            return {str(row.token): float(row.used) for row in connection.execute(select(token_uses)).all()}

    def make_room(self, keep_bytes: float, keep_seconds: float, audit_seconds: float, stale: float = STALE_SECONDS) -> int:
        """Drops what is too old, then the answers that were not used for longest, until the rest has `keep_bytes`; returns the
        bytes that it freed."""
        with self.database.transaction() as connection:
            now = self.database.now(connection)
            connection.execute(delete(answers).where(answers.c.used < now - keep_seconds))
            total = int(connection.execute(select(func.coalesce(func.sum(answers.c.bytes), 0))).scalar_one())
            for row in connection.execute(select(answers.c.key, answers.c.bytes).order_by(answers.c.used)).all():
                if total <= keep_bytes:
                    break
                connection.execute(delete(answers).where(answers.c.key == row.key))
                total -= row.bytes
            connection.execute(delete(audit).where(audit.c.at < now - audit_seconds))
            ended = jobs.c.state.in_(ENDED)
            connection.execute(delete(jobs).where(ended & (jobs.c.ended < now - keep_seconds)))
            edge = connection.execute(
                select(jobs.c.number).where(ended).order_by(jobs.c.number.desc()).offset(MOST_ENDED).limit(1)
            ).scalar()
            if edge is not None:
                connection.execute(delete(jobs).where(ended & (jobs.c.number <= edge)))
        return self.blobs.sweep(self.named_blobs(), stale)

    def named_blobs(self) -> set[str]:
        """Hashes of the blobs that answers and open jobs name."""
        found: set[str] = set()
        with self.database.reading() as connection:
            for row in connection.execute(select(answers.c.body, answers.c.artefacts)).all():
                found |= {row.body, *(one["hash"] for one in json.loads(row.artefacts).values())}
            for (question,) in connection.execute(select(jobs.c.question).where(jobs.c.state.in_(("queued", "running")))).all():
                found |= set(json.loads(question)["files"].values())
        return found


def _job(row: Any, position: int | None) -> JobRow:
    return JobRow(
        row.id, row.key, row.verb, row.state, row.asker, row.progress, row.doing, row.log,
        None if row.error is None else json.loads(row.error), row.attempt, row.created, row.started, row.ended,
        json.loads(row.question)["command"], position,
    )  # fmt: skip


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
