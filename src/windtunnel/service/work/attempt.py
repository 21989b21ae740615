"""One attempt at a question: its folder, its process, and what came of it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windtunnel.service.settings import ServiceSettings
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.queue import LOG_BYTES, StoredQuestion, error_table
from windtunnel.service.work.child import OUT, WORK, run_child
from windtunnel.service.work.outcome import QuestionOutcome, media_of, read_written, text_media

_TERM_SECONDS = 0.5


class Attempt:
    """A process that answers `question`. `wake`: a file that is readable when the caller should be asked at once."""

    def __init__(self, question: StoredQuestion, blobs: Blobs, settings: ServiceSettings, readable: Sequence[Path]) -> None:
        self.question, self._settings = question, settings
        self.doing: str | None = None
        self.share: float | None = None
        self._told: Any = None
        self._ended = self._over_time = False
        self._rest = b""
        settings.scratch.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(dir=settings.scratch, prefix="job-"))
        self._began = time.monotonic()
        try:
            self._unpack(blobs)
            self._reader, writer = os.pipe()
            self._pid = os.fork()
            if self._pid == 0:
                run_child(
                    question, self.scratch, writer, settings.job_memory, settings.job_seconds, settings.job_file,
                    settings.job_cores, readable,
                )  # fmt: skip
            os.close(writer)
        except BaseException:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise

    def _unpack(self, blobs: Blobs) -> None:
        for folder in (WORK, OUT):
            (self.scratch / folder).mkdir(mode=0o700)
        for name, digest in self.question.files.items():
            data = blobs.get(digest)
            if data is None:
                raise FileNotFoundError(name)
            path = self.scratch / WORK / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def wait(self, beat: Callable[[], bool], every: float, wake: int | None = None) -> QuestionOutcome | None:
        """Waits for the end. `beat` is called every so many seconds, and when `wake` is readable; where it returns False, the
        process is ended and None returned."""
        following = time.monotonic() + every
        limit = self._began + self._settings.job_seconds
        while not self._ended:
            left = min(following, limit) - time.monotonic()
            watched = [self._reader] if wake is None else [self._reader, wake]
            ready = select.select(watched, [], [], max(0.0, left))[0]
            if self._reader in ready:
                self._read()
            if time.monotonic() >= limit and not self._ended:
                self._over_time = True
                break
            if (wake in ready or time.monotonic() >= following) and not self._ended:
                if not beat():
                    self.end()
                    return None
                following = time.monotonic() + every
        return self._outcome()

    def _read(self) -> None:
        data = os.read(self._reader, 1 << 16)
        if not data:
            self._ended = True
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "outcome" in said:
                self._told, self._ended = said, True
            else:
                self.doing, self.share = said["doing"], said["share"]

    def end(self) -> None:
        """Ends the process and all that it started, and its folder."""
        self._collect(_TERM_SECONDS if self._told is not None else 0.0)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _collect(self, patience: float) -> int:
        """The wait status; the process has `patience` seconds to end by itself."""
        if self._pid == 0:
            return 0
        until = time.monotonic() + patience
        found, status = os.waitpid(self._pid, os.WNOHANG)
        while found == 0 and time.monotonic() < until:
            time.sleep(0.001)
            found, status = os.waitpid(self._pid, os.WNOHANG)
        for kill, target in ((os.killpg, self._pid), (os.kill, self._pid)):
            try:
                if kill is os.killpg or found == 0:
                    kill(target, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        if found == 0:
            _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        os.close(self._reader)
        return status

    def log(self) -> str:
        """The end of what the question said on standard error."""
        try:
            with open(self.scratch / OUT / "log", "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - LOG_BYTES))
                return file.read().decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
        except OSError:
            return ""

    def _outcome(self) -> QuestionOutcome:
        status = self._collect(_TERM_SECONDS if self._told is not None or self._ended else 0.0)
        seconds, log = time.monotonic() - self._began, self.log()
        try:
            if self._over_time or os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
                text = f"the question took longer than the {self._settings.job_seconds:g} s that it may take."
                return QuestionOutcome(error=error_table("TimeLimit", text), log=log, seconds=seconds)
            if self._told is None:
                return QuestionOutcome(error=_explain_kill(status), log=log, seconds=seconds, again=True)
            if self._told["outcome"] is not None:
                return QuestionOutcome(error=self._told["outcome"], log=log, seconds=seconds)
            return self._answer(log, seconds)
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _answer(self, log: str, seconds: float) -> QuestionOutcome:
        most = self._settings.job_file
        body = read_written(self.scratch / OUT, "answer", most).get("", b"")
        artefacts = {}
        for name, file in self.question.outputs.items():
            for inner, data in read_written(self.scratch / WORK, file, most).items():
                artefacts[f"{name}/{inner}" if inner else name] = (data, media_of(inner or file, data))
        media = "application/json" if self.question.json else text_media(body)
        return QuestionOutcome(body, media, artefacts, None, log, seconds)


def _explain_kill(status: int) -> dict[str, str]:
    if not os.WIFSIGNALED(status):
        return error_table("WorkerEnded", f"the process of the question ended with exit code {os.waitstatus_to_exitcode(status)}.")
    name = signal.Signals(os.WTERMSIG(status)).name
    why = " The machine had no memory left, or someone ended it." if name == "SIGKILL" else ""
    return error_table("WorkerKilled", f"the process of the question was killed by {name}.{why}")
