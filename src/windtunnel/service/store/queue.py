"""The queue: jobs are claimed with a lease and a fence, so that each is answered once, whatever is killed meanwhile.

A worker claims a job in one statement, extends its lease while it works, and ends it only while the job is still its own and of the
same fence. A job whose lease has passed waits again. So a job may run twice after a kill, but counts once.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.service.store.database import Database, active, answers, counters, jobs

MOST_CRASHES = 3
"""Kills of a job's own process, after which it has failed."""
MOST_ATTEMPTS = 20
"""Claims of a job whose workers were all lost, after which it has failed."""
LOG_BYTES = 16 << 10
DAY = 86400.0
ENDED = ("done", "failed", "cancelled")


class QueueFull(WindtunnelError):
    """More questions wait than the service or one asker may have."""


class QuotaSpent(WindtunnelError):
    """An asker had as many seconds of work in a day as they may. `wait`: seconds until the next question may be asked."""

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class StoredQuestion:
    """A question as the queue keeps it: `files` and `outputs` by name, bytes by their hash."""

    key: str
    verb: str
    words: tuple[str, ...]
    files: Mapping[str, str]
    outputs: Mapping[str, str]
    json: bool
    command: str

    def text(self) -> str:
        """As JSON."""
        said = {"words": self.words, "files": dict(self.files), "outputs": dict(self.outputs), "json": self.json}
        return json.dumps({**said, "command": self.command}, sort_keys=True)  # fmt: skip

    @classmethod
    def of_row(cls, row: Any) -> StoredQuestion:
        """Of a row of `jobs`."""
        said = json.loads(row.question)
        return cls(row.key, row.verb, tuple(said["words"]), said["files"], said["outputs"], said["json"], said["command"])


@dataclass(frozen=True)
class Claim:
    """A job that a worker holds."""

    job: str
    owner: str
    fence: int
    question: StoredQuestion


@dataclass(frozen=True)
class KeptAnswer:
    """An answer as it is kept: `body` and `artefacts` (name -> hash, media, bytes) by the hashes of blobs. `seconds`: of its
    work."""

    key: str
    verb: str
    command: str
    version: str
    body: str
    media: str
    artefacts: Mapping[str, Mapping[str, Any]]
    log: str
    seconds: float
    bytes: int


@dataclass(frozen=True)
class QueueLimits:
    """Questions that may wait or run at the same time: of one asker, and of all; and the seconds of work of one asker in 24
    hours."""

    of_one: int = 5000
    of_all: int = 20000
    seconds_a_day: float | None = None


class JobQueue:
    """The queue in `database`. `lease`: seconds for which a worker that says nothing keeps a job."""

    def __init__(self, database: Database, lease: float = 15.0, limits: QueueLimits | None = None) -> None:
        self.database, self.lease, self.limits = database, lease, limits or QueueLimits()

    def submit(self, question: StoredQuestion, asker: str, short: bool) -> tuple[str | None, bool]:
        """Accepts a question: its job and False, or (None, True) where its answer is kept already. QueueFull if too many wait,
        QuotaSpent if its asker had all the work of a day."""
        with self.database.transaction() as connection:
            if connection.execute(select(answers.c.key).where(answers.c.key == question.key)).first() is not None:
                return None, True
            found = connection.execute(select(active.c.job).where(active.c.key == question.key)).scalar()
            if found is not None:
                return str(found), False
            self._check_room(connection, asker)
            self._check_quota(connection, asker)
            number = connection.execute(
                update(counters).where(counters.c.name == "jobs").values(value=counters.c.value + 1).returning(counters.c.value)
            ).scalar_one()  # fmt: skip
            job = secrets.token_hex(12)
            dialect: Any = sqlite if self.database.sqlite else postgresql
            made = connection.execute(dialect.insert(active).values(key=question.key, job=job).on_conflict_do_nothing())
            if made.rowcount == 0:  # another server accepted it meanwhile
                return str(connection.execute(select(active.c.job).where(active.c.key == question.key)).scalar_one()), False
            connection.execute(
                insert(jobs).values(
                    id=job, number=number, key=question.key, verb=question.verb, question=question.text(), asker=asker,
                    state="queued", short=int(short), attempt=0, crashes=0, fence=0, completions=0, cancel=False, log="",
                    created=self.database.now(connection),
                )
            )  # fmt: skip
            return job, False

    def _check_room(self, connection: Connection, asker: str) -> None:
        open_jobs = jobs.c.state.in_(("queued", "running"))
        count = select(func.count()).select_from(jobs).where(open_jobs)
        if int(connection.execute(count).scalar_one()) >= self.limits.of_all:
            raise QueueFull("the service has as many questions as it may: ask again later.")
        if int(connection.execute(count.where(jobs.c.asker == asker)).scalar_one()) >= self.limits.of_one:
            raise QueueFull(f"{self.limits.of_one} questions of yours wait: ask again when some have ended, or cancel some.")

    def _check_quota(self, connection: Connection, asker: str) -> None:
        most = self.limits.seconds_a_day
        if most is None:
            return
        now = self.database.now(connection)
        edge = now - DAY
        rows = connection.execute(
            select(jobs.c.started, jobs.c.ended).where(
                (jobs.c.asker == asker) & jobs.c.started.is_not(None) & (jobs.c.ended.is_(None) | (jobs.c.ended > edge))
            )
        ).all()
        spans = [(float(row.started), float(row.ended if row.ended is not None else now)) for row in rows]
        used = work_after(spans, edge)
        if used >= most:
            wait = wait_for_quota(spans, edge, most)
            free = datetime.fromtimestamp(now + wait, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            raise QuotaSpent(
                f"your questions had {used:,.0f} s of work in the last 24 hours, of {most:,.0f} s that they may have: ask again at "
                f"{free}. Answers that are kept need none.",
                wait,
            )

    def claim(self, owner: str, short_only: bool = False) -> Claim | None:
        """The next job that waits, the short ones first; None if there is none."""
        wanted = "and short = 1" if short_only else ""
        skip = "" if self.database.sqlite else "for update skip locked"
        statement = text(
            f"update jobs set state = 'running', owner = :owner, lease_until = :until, attempt = attempt + 1, fence = fence + 1, "
            f"started = coalesce(started, :now), progress = null, doing = null "
            f"where state = 'queued' and id = (select id from jobs "
            f"where state = 'queued' {wanted} order by short desc, number limit 1 {skip}) "
            f"returning id, fence, key, verb, question"
        )
        waits = select(jobs.c.id).where(jobs.c.state == "queued").limit(1)
        with self.database.reading() as probe:  # an idle worker takes no write lock
            if probe.execute(waits.where(jobs.c.short == 1) if short_only else waits).first() is None:
                return None
        with self.database.transaction() as connection:
            now = self.database.now(connection)
            row = connection.execute(statement, {"owner": owner, "until": now + self.lease, "now": now}).first()
        return None if row is None else Claim(row.id, owner, row.fence, StoredQuestion.of_row(row))

    def beat(self, claim: Claim, progress: float | None, doing: str | None, log: str) -> str:
        """Extends the lease and tells how far the job is. Returns `go`, `cancel`, or `lost` where it is another worker's now."""
        with self.database.transaction() as connection:
            until = self.database.now(connection) + self.lease
            row = connection.execute(
                self._update_own(claim)
                .values(lease_until=until, progress=progress, doing=doing, log=log[-LOG_BYTES:])
                .returning(jobs.c.cancel)
            ).first()  # fmt: skip
        return "lost" if row is None else "cancel" if row.cancel else "go"

    def finish(self, claim: Claim, answer: KeptAnswer) -> bool:
        """Keeps an answer and ends its job, both or none. False if the job is no longer this worker's."""
        with self.database.transaction() as connection:
            now = self.database.now(connection)
            ended = connection.execute(
                self._update_own(claim).values(
                    state="done", completions=jobs.c.completions + 1, ended=now, owner=None, lease_until=None, progress=1.0,
                    log=answer.log[-LOG_BYTES:],
                )
            )  # fmt: skip
            if ended.rowcount == 0:
                return False
            connection.execute(delete(answers).where(answers.c.key == answer.key))
            connection.execute(
                insert(answers).values(
                    key=answer.key, verb=answer.verb, command=answer.command, version=answer.version, body=answer.body,
                    media=answer.media, artefacts=json.dumps(answer.artefacts, sort_keys=True), log=answer.log[-LOG_BYTES:],
                    seconds=answer.seconds, bytes=answer.bytes, created=now, used=now,
                )
            )  # fmt: skip
            connection.execute(delete(active).where(active.c.job == claim.job))
        return True

    def fail(self, claim: Claim, error: Mapping[str, Any], log: str = "", state: str = "failed") -> bool:
        """Ends a job without an answer. False if it is no longer this worker's."""
        with self.database.transaction() as connection:
            ended = connection.execute(
                self._update_own(claim).values(
                    state=state, ended=self.database.now(connection), owner=None, lease_until=None, error=json.dumps(error),
                    log=log[-LOG_BYTES:],
                )
            )  # fmt: skip
            if ended.rowcount:
                connection.execute(delete(active).where(active.c.job == claim.job))
        return bool(ended.rowcount)

    def give_back(self, claim: Claim, crashed: bool = False) -> bool:
        """Lets a job wait again: its worker stops, or (`crashed`) its process was killed by something else. False where the job has
        crashed too often, or is no longer this worker's."""
        with self.database.transaction() as connection:
            changes: dict[str, Any] = {"state": "queued", "owner": None, "lease_until": None}
            changes |= {"crashes": jobs.c.crashes + 1} if crashed else {"attempt": jobs.c.attempt - 1}
            done = connection.execute(self._update_own(claim).where(jobs.c.crashes < MOST_CRASHES - crashed).values(changes))
        return bool(done.rowcount)

    def reap(self, lost_owners: Sequence[str] = (), ended: list[str] | None = None) -> int:
        """Lets jobs wait again whose lease has passed, or whose owner is known to be gone. Returns how many; `ended` is given those
        that had ended instead."""
        with self.database.transaction() as connection:
            now = self.database.now(connection)
            gone = (jobs.c.state == "running") & ((jobs.c.lease_until < now) | jobs.c.owner.in_(list(lost_owners)))
            cancelled = connection.execute(
                update(jobs).where(gone & jobs.c.cancel).values(state="cancelled", ended=now, owner=None, lease_until=None)
                .returning(jobs.c.id)
            ).scalars().all()  # fmt: skip
            error = json.dumps(error_table("WorkerLost", f"{MOST_ATTEMPTS} workers were lost with it"))
            failed = connection.execute(
                update(jobs).where(gone & (jobs.c.attempt >= MOST_ATTEMPTS))
                .values(state="failed", ended=now, owner=None, lease_until=None, error=error).returning(jobs.c.id)
            ).scalars().all()  # fmt: skip
            for job in (*cancelled, *failed):
                connection.execute(delete(active).where(active.c.job == job))
            again = connection.execute(update(jobs).where(gone).values(state="queued", owner=None, lease_until=None))
        if ended is not None:
            ended += [*map(str, cancelled), *map(str, failed)]
        return int(again.rowcount)

    def cancel(self, job: str) -> str | None:
        """Asks a job to end; returns its state after that, None for a job that is not known."""
        with self.database.transaction() as connection:
            now = self.database.now(connection)
            done = connection.execute(
                update(jobs)
                .where((jobs.c.id == job) & (jobs.c.state == "queued"))
                .values(state="cancelled", ended=now, cancel=True)
            )
            if done.rowcount:
                connection.execute(delete(active).where(active.c.job == job))
            connection.execute(update(jobs).where((jobs.c.id == job) & (jobs.c.state == "running")).values(cancel=True))
            state = connection.execute(select(jobs.c.state).where(jobs.c.id == job)).scalar()
        return None if state is None else str(state)

    def _update_own(self, claim: Claim) -> Any:
        return update(jobs).where(
            (jobs.c.id == claim.job) & (jobs.c.owner == claim.owner) & (jobs.c.fence == claim.fence) & (jobs.c.state == "running")
        )


def work_after(spans: Sequence[tuple[float, float]], edge: float) -> float:
    """Seconds of work after `edge`; `spans`: start and end of each piece, in seconds."""
    return sum(max(0.0, end - max(start, edge)) for start, end in spans)


def wait_for_quota(spans: Sequence[tuple[float, float]], edge: float, most: float) -> float:
    """Seconds until the work after `edge`, which moves on with time, is below `most`, if none is added; rounded up to a second."""
    low, high = 0, int(DAY)
    while low < high:
        middle = (low + high) // 2
        if work_after(spans, edge + middle) < most:
            high = middle
        else:
            low = middle + 1
    return float(low)


def error_table(kind: str, message: str, field: str = "", allowed: str = "", instead: str = "") -> dict[str, str]:
    """An error as the service tells it; the keys that say nothing are left out."""
    said = {"kind": kind, "message": message, "field": field, "allowed": allowed, "instead": instead}
    return {key: value for key, value in said.items() if value}
