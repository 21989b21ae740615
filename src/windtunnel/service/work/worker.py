"""A worker: imports everything once, then forks a process for each question that it claims.

Its first line of standard input is the settings. After that a byte there means "look now", and its end means "stop": the
question in work waits again. On standard output it says which jobs have ended, as a hint to the server that started it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError

from windtunnel.base.version import __version__
from windtunnel.service.settings import ServiceSettings
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.database import Database, StoreFull
from windtunnel.service.store.queue import Claim, JobQueue, KeptAnswer, error_table
from windtunnel.service.work.attempt import Attempt
from windtunnel.service.work.confine import installation
from windtunnel.service.work.outcome import QuestionOutcome

POLL_SECONDS, BEAT_SECONDS = 0.5, 1.0
_WARM = ("predict", "llama3-8b-8xh100", "--json", "-", "--html", "page.html")


class Worker:
    """Claims and answers questions until its standard input ends. `short_only`: leaves long ones to others."""

    def __init__(self, settings: ServiceSettings, owner: str, short_only: bool = False) -> None:
        self.settings, self.owner, self.short_only = settings, owner, short_only
        self.database = Database(Path(settings.folder), settings.database)
        self.queue = JobQueue(self.database, settings.lease)
        self.blobs = Blobs(settings.blobs)
        self.readable = installation()
        self.stopping = False

    def run(self) -> None:
        """Works until it is told to stop."""
        while not self.stopping:
            try:
                self.work()
            except (DBAPIError, StoreFull, OSError) as error:  # the database is away or full: leases pass, nothing is lost
                print(f"worker: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
                self.listen(BEAT_SECONDS)

        self.close()

    def work(self) -> None:
        """One question, or a wait for the next one."""
        claim = self.queue.claim(self.owner, self.short_only)
        if claim is None:
            self.listen(POLL_SECONDS)
            return
        self._serve(claim)
        say(f"ended {claim.job}")

    def close(self) -> None:
        """What is left to do when it stops."""
        self.database.close()

    def listen(self, seconds: float) -> None:
        """Waits for a word of the server."""
        until = time.monotonic() + seconds
        if select.select([0], [], [], max(0.0, until - time.monotonic()))[0] and not os.read(0, 4096):
            self.stopping = True

    def _serve(self, claim: Claim) -> None:
        try:
            attempt = Attempt(claim.question, self.blobs, self.settings, self.readable)
        except FileNotFoundError as error:
            self.queue.fail(claim, error_table("UploadLost", f"the upload {error.args[0]!r} is no longer kept: ask again."))
            return
        state = "go"

        def beat() -> bool:
            nonlocal state
            self.listen(0.0)
            if self.stopping:
                return False
            state = self.queue.beat(claim, attempt.share, attempt.doing, attempt.log())
            return state == "go"

        try:
            outcome = attempt.wait(beat, min(BEAT_SECONDS, self.settings.lease / 3), 0)
        except BaseException:
            attempt.end()
            raise
        if outcome is not None:
            self._end(claim, outcome)
        elif state == "cancel":
            self.queue.fail(claim, error_table("Cancelled", "the job was cancelled."), state="cancelled")
        elif self.stopping:
            self.queue.give_back(claim)

    def _end(self, claim: Claim, outcome: QuestionOutcome) -> None:
        if outcome.error is not None:
            if outcome.again and self.queue.give_back(claim, crashed=True):
                return
            self.queue.fail(claim, outcome.error, outcome.log)
            return
        try:
            self.queue.finish(claim, keep_answer(claim, outcome, self.blobs))
        except StoreFull as error:
            self.queue.fail(claim, error_table("StoreFull", str(error)), outcome.log)


def keep_answer(claim: Claim, outcome: QuestionOutcome, blobs: Blobs) -> KeptAnswer:
    """Puts the bytes of an answer on disk, and returns the row that names them. StoreFull if they do not fit."""
    question, body = claim.question, outcome.body or b""
    artefacts: dict[str, Mapping[str, Any]] = {
        name: {"hash": blobs.put(data), "media": media, "bytes": len(data)} for name, (data, media) in outcome.artefacts.items()
    }
    size = len(body) + sum(int(one["bytes"]) for one in artefacts.values())
    return KeptAnswer(
        question.key, question.verb, question.command, __version__, blobs.put(body), outcome.media, artefacts, outcome.log,
        outcome.seconds, size,
    )  # fmt: skip


def say(line: str) -> None:
    """A hint to the server; it may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def warm_up() -> None:
    """Imports what the verbs need and reads the catalogue: a forked process has it at once."""
    import tempfile

    from windtunnel.cli import run_words
    from windtunnel.service.questions import offered_verbs

    offered_verbs()
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as nothing:
        os.chdir(folder)
        with contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing), contextlib.suppress(Exception):
            run_words(_WARM)
        os.chdir(before)
    gc.collect()
    gc.freeze()


def read_settings() -> ServiceSettings | None:
    """The first line of standard input; None if the server is gone already."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return None
        line += byte
    return ServiceSettings.of_json(line.decode())


def main() -> None:
    """Runs a worker: `python -P -m windtunnel.service.work.worker OWNER [short]`."""
    settings = read_settings()
    if settings is None:
        return
    warm_up()
    worker = Worker(settings, sys.argv[1], "short" in sys.argv[2:])
    say("ready")
    worker.run()


if __name__ == "__main__":
    main()
