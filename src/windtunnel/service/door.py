"""The door of a service inside its process: ask, submit, watch, cancel. The HTTP interface and the page both come through it.

    door = ServiceDoor(settings)
    await door.open()
    asked = await door.ask("predict", {"job": "llama3-8b-8xh100", "set": {"plan.tp": 2}}, wait=5.0)
    asked.bytes, asked.key, asked.command, asked.cached

    job = await door.submit("search", {"job": "llama3-8b-8xh100", "gpus": "8,16"})
    while not (job := await door.job(job.id)).has_ended:
        show(job.progress, job.doing)
    asked = await door.answer(job.key)

All of it is for one event loop, and blocks it nowhere: the database is asked in threads, verbs run in processes of their own.
Errors: UnknownName, SpecError and FileError for a question that is wrong before it runs; AnswerError, with the same fields as
a table, for one that failed; StillRunning, with its job, for one that takes longer than `wait`; QueueFull; QuotaSpent; StoreFull.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import WindtunnelError
from windtunnel.service.questions import AskedQuestion, ask_question, is_short
from windtunnel.service.settings import ServiceSettings
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.database import open_database
from windtunnel.service.store.queue import ENDED, JobQueue, KeptAnswer, QueueLimits, StoredQuestion
from windtunnel.service.store.shelf import USED_SECONDS, AuditRow, EndedJob, JobRow, Shelf
from windtunnel.service.work.pool import WorkerPool

T = TypeVar("T")
_POLL_SECONDS, _TICK_SECONDS, _ROOM_SECONDS = 0.25, 1.0, 60.0
_SCRATCH_SECONDS = 3600.0
_MOST_COUNTED = 10_000


class AnswerError(WindtunnelError):
    """A question that failed. `table`: kind, message, field, allowed, instead; `job`: its id."""

    def __init__(self, table: Mapping[str, Any], job: str) -> None:
        super().__init__(str(table.get("message", "the question failed.")))
        self.table, self.job = dict(table), job


class StillRunning(WindtunnelError):
    """A question that takes longer than one waits; `job` is what answers it."""

    def __init__(self, job: JobView) -> None:
        super().__init__(f"the question is still in work: job {job.id}.")
        self.job = job


@dataclass(frozen=True)
class Asked:
    """An answer. `bytes`: what the command line prints with --json -; `seconds`: that its work took; `artefacts`: name -> media
    type; `cached`: whether it had been worked out before."""

    bytes: bytes
    key: str
    command: str
    seconds: float
    cached: bool
    verb: str
    media: str
    version: str
    artefacts: Mapping[str, str]
    log: str


@dataclass(frozen=True)
class JobView:
    """A job: `state` is queued, running, done, failed or cancelled; `progress` a share of 1, or None where it is not known; `doing`
    in words; `position`: jobs before it; `error`: a table where it failed. Its answer has `key`."""

    id: str
    key: str
    verb: str
    command: str
    state: str
    progress: float | None
    doing: str | None
    log: str
    error: Mapping[str, Any] | None
    position: int | None
    attempt: int
    created: float
    started: float | None
    finished: float | None
    asker: str

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class ServiceDoor:
    """A service in this process: its store, its workers, and what one may ask it. Open it in the event loop that uses it."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.database = open_database(Path(settings.folder), settings.database)
        self.blobs = Blobs(settings.blobs)
        self.queue = JobQueue(self.database, settings.lease, QueueLimits(settings.of_one, settings.of_all, settings.seconds_a_day))
        self.shelf = Shelf(self.database, self.blobs)
        self.pool: WorkerPool | None = None
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._lost: list[str] = []
        self._audit: list[AuditRow] = []
        self._uses: dict[str, float] = {}
        self._used: dict[str, float] = {}
        self._beside: asyncio.Task[None] | None = None
        self.when_ended: Callable[[EndedJob], None] = lambda _: None
        """Is told of each job that this server's workers ended, that it cancelled or gave up, within a second."""
        self.when_told: Callable[[str, str], None] = lambda *_: None
        """Is told the verb of each question that needed no work, and why: `kept` or `refused`."""
        self._ended: list[str] = []
        self._counted: dict[str, None] = {}

    async def open(self) -> None:
        """Starts the workers, and what looks after leases and room."""
        self.pool = WorkerPool(self.settings, self._end, self._lost.append)
        self.pool.start()
        self._beside = asyncio.ensure_future(self._tick())

    async def close(self) -> None:
        """Ends the workers; questions in work wait for the next start."""
        if self._beside is not None:
            self._beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beside
        if self.pool is not None:
            await self.pool.close()
        with contextlib.suppress(DBAPIError, WindtunnelError):
            await asyncio.to_thread(self._look_after)
        self.database.close()

    async def ask(
        self, verb: str, arguments: Mapping[str, Any], files: Mapping[str, Any] | None = None, artefacts: Sequence[str] = (),
        wait: float | None = None, asker: str = "page",
    ) -> Asked:  # fmt: skip
        """The answer to a question. `arguments`: options by long name and positional arguments by name; a `job` may be a table as
        in a job file; `files`: upload -> text, bytes or {"base64": text}; `artefacts`: options that write files (`html`, `trace`);
        `wait`: seconds, by default the service's. StillRunning if they do not do."""
        question = await self._question(verb, arguments, files, artefacts)
        kept = await self.answer(question.key)
        if kept is not None:
            self.when_told(question.verb, "kept")
            return kept
        job = await self._submit(question, asker)
        if job is not None:
            await self._wait_for_end(job, self.settings.wait_seconds if wait is None else min(wait, self.settings.most_wait))
        kept = await self.answer(question.key, cached=job is None)
        if kept is not None:
            return kept
        view = await self.job(job) if job is not None else None
        if view is None:
            raise AnswerError({"kind": "Lost", "message": "the answer is no longer kept: ask again."}, "")
        if view.state in ("failed", "cancelled"):
            raise AnswerError(view.error or {"kind": "Cancelled", "message": "the job was cancelled."}, view.id)
        raise StillRunning(view)

    async def submit(
        self, verb: str, arguments: Mapping[str, Any], files: Mapping[str, Any] | None = None, artefacts: Sequence[str] = (),
        asker: str = "page",
    ) -> JobView:  # fmt: skip
        """Accepts a question as a job; arguments as of `ask`. Where its answer is kept, the job is done and has no id."""
        question = await self._question(verb, arguments, files, artefacts)
        kept = await self.answer(question.key)
        if kept is not None:
            self.when_told(question.verb, "kept")
        job = None if kept is not None else await self._submit(question, asker)
        found = None if job is None else await self.job(job)
        if found is not None:
            return found
        return JobView(
            "",
            question.key,
            question.verb,
            question.command,
            "done",
            1.0,
            None,
            "",
            None,
            None,
            0,
            time.time(),
            None,
            time.time(),
            asker,
        )

    async def job(self, job: str) -> JobView | None:
        """A job by its id; None if it is not known."""
        row = await self._in_thread(lambda: self.shelf.job(job))
        return None if row is None else _view(row)

    async def jobs(self, state: str | None = None, before: int | None = None, limit: int = 50) -> tuple[list[JobView], int | None]:
        """Jobs, the newest first, and what to give as `before` for the next page (None: that was all)."""
        rows, following = await self._in_thread(lambda: self.shelf.jobs(state, before, limit))
        return [_view(row) for row in rows], following

    async def cancel(self, job: str) -> JobView | None:
        """Ends a job; one that runs ends shortly after. None if it is not known."""
        if await self._in_thread(lambda: self.queue.cancel(job)) is None:
            return None
        self._end(job)
        if self.pool is not None:
            self.pool.nudge()
        return await self.job(job)

    async def wait(self, job: str, seconds: float) -> JobView | None:
        """The job when it has ended, or after so many seconds."""
        await self._wait_for_end(job, seconds)
        return await self.job(job)

    async def answer(self, key: str, cached: bool = True) -> Asked | None:
        """A kept answer by the key of its question; None if it is not kept."""
        return await self._in_thread(lambda: self._read_answer(key, cached))

    async def artefact(self, key: str, name: str) -> tuple[bytes, str] | None:
        """An artefact of a kept answer: its bytes and media type; None if there is none of that name."""

        def read() -> tuple[bytes, str] | None:
            kept = self.shelf.answer(key)
            said = None if kept is None else kept.artefacts.get(name)
            data = None if said is None else self.blobs.get(said["hash"])
            return None if data is None or said is None else (data, str(said["media"]))

        return await self._in_thread(read)

    async def catalogue(self, kind: str) -> list[str]:
        """Names of the catalogue: jobs, models, clusters, gpus, …; see `windtunnel catalog`."""
        from windtunnel.spec import names

        return await self._in_thread(lambda: list(names(kind)))

    def note(self, who: str, what: str, came_from: str, status: int, seconds: float | None = None) -> None:
        """Adds to the audit log, within a second. `seconds`: that it took."""
        self._audit.append(AuditRow(time.time(), who, what, came_from, status, seconds))

    def note_use(self, token: str) -> None:
        """A token, by its hash, was used: kept once a minute, not with each request."""
        now = time.time()
        if now - self._used.get(token, 0.0) >= USED_SECONDS:
            self._used[token] = self._uses[token] = now

    async def settle(self) -> dict[str, int]:
        """Tells `when_ended` of what has ended by now; returns the numbers of jobs by state and of kept answers."""
        await self._tell_ended()
        return await self._in_thread(self.shelf.counts)

    async def _tell_ended(self) -> None:
        ids = list(self._ended)
        del self._ended[: len(ids)]
        wanted = [job for job in dict.fromkeys(ids) if job not in self._counted]
        if not wanted:
            return
        try:
            rows = await self._in_thread(lambda: self.shelf.ended_jobs(wanted))
        except DBAPIError:
            self._ended[:0] = wanted
            raise
        for row in rows:
            if row.id not in self._counted:
                self._counted[row.id] = None
                self.when_ended(row)
        while len(self._counted) > _MOST_COUNTED:
            del self._counted[next(iter(self._counted))]

    async def _question(
        self, verb: str, arguments: Mapping[str, Any], files: Mapping[str, Any] | None, artefacts: Sequence[str]
    ) -> AskedQuestion:
        try:
            return await self._in_thread(lambda: ask_question(verb, arguments, files, artefacts))
        except WindtunnelError:
            self.when_told(verb, "refused")
            raise

    async def _submit(self, question: AskedQuestion, asker: str) -> str | None:
        def keep() -> str | None:
            files = {name: self.blobs.put(data) for name, data in question.files.items()}
            stored = StoredQuestion(
                question.key, question.verb, question.words, files, question.outputs, question.json, question.command
            )
            return self.queue.submit(stored, asker, is_short(question))[0]

        try:
            job = await self._in_thread(keep)
        except WindtunnelError:
            self.when_told(question.verb, "refused")
            raise
        if job is not None and self.pool is not None:
            self.pool.nudge()
        return job

    async def _wait_for_end(self, job: str, seconds: float) -> None:
        """Waits for the end of a job, or so many seconds."""
        until, event = time.monotonic() + seconds, asyncio.Event()
        self._waiting.setdefault(job, []).append(event)
        try:
            while True:
                row = await self._in_thread(lambda: self.shelf.job(job))
                left = until - time.monotonic()
                if row is None or row.state in ENDED or left <= 0:
                    return
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(event.wait(), min(left, _POLL_SECONDS))
                event.clear()
        finally:
            self._waiting[job].remove(event)
            if not self._waiting[job]:
                del self._waiting[job]

    def _end(self, job: str) -> None:
        """A job has ended, or is about to."""
        self._ended.append(job)
        for event in self._waiting.get(job, ()):
            event.set()

    def _read_answer(self, key: str, cached: bool) -> Asked | None:
        kept = self.shelf.answer(key)
        if kept is None:
            return None
        data = self.blobs.get(kept.body)
        if data is None:
            self.shelf.forget(key)
            return None
        return _asked_of(kept, data, cached)

    async def _in_thread(self, what: Callable[[], T]) -> T:
        return await asyncio.to_thread(what)

    async def _tick(self) -> None:
        room = 0.0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                if await self._in_thread(self._look_after) and self.pool is not None:
                    self.pool.nudge()
                await self._tell_ended()
                if time.monotonic() > room:
                    room = time.monotonic() + _ROOM_SECONDS
                    await self._in_thread(self._make_room)
            except (DBAPIError, WindtunnelError, OSError):
                continue  # the database is away or full; the next round tries again

    def _look_after(self) -> int:
        """Leases that have passed, workers that are gone, lines of the audit log."""
        lost, self._lost[:] = list(self._lost), []
        noted, self._audit[:] = list(self._audit), []
        uses, self._uses = self._uses, {}
        try:
            if noted:
                self.shelf.note(noted)
                noted = []
            if uses:
                self.shelf.note_uses(uses)
                uses = {}
            again = self.queue.reap(lost, self._ended)
            lost = []
            return again
        finally:
            self._lost[:0] = lost
            self._audit[:0] = noted[-10_000:]
            self._uses = {**uses, **self._uses}

    def _make_room(self) -> None:
        settings = self.settings
        self.shelf.make_room(settings.keep_bytes, settings.keep_seconds, settings.audit_seconds)
        edge = time.time() - settings.job_seconds - _SCRATCH_SECONDS
        for folder in settings.scratch.glob("job-*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < edge:
                    shutil.rmtree(folder, ignore_errors=True)


def _asked_of(kept: KeptAnswer, data: bytes, cached: bool) -> Asked:
    media = {name: str(one["media"]) for name, one in kept.artefacts.items()}
    return Asked(data, kept.key, kept.command, kept.seconds, cached, kept.verb, kept.media, kept.version, media, kept.log)


def _view(row: JobRow) -> JobView:
    return JobView(
        row.id, row.key, row.verb, row.command, row.state, row.progress, row.doing, row.log, row.error, row.position, row.attempt,
        row.created, row.started, row.ended, row.asker,
    )  # fmt: skip
