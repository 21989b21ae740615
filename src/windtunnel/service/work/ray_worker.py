"""A worker whose questions are answered on a Ray cluster.

It claims as other workers do, sends the question with its uploads to the cluster, and keeps what comes back. The task there runs
the same process as a worker of this machine, with the same walls and limits, so each of its machines has windtunnel installed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from windtunnel.base.errors import NotInstalled
from windtunnel.service.settings import ServiceSettings
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.queue import Claim, StoredQuestion, error_table
from windtunnel.service.work.outcome import QuestionOutcome
from windtunnel.service.work.worker import BEAT_SECONDS, Worker, read_settings, say

MOST_AT_ONCE = 256
"""Questions that one of these has on the cluster at the same time."""


def answer_apart(question: StoredQuestion, files: dict[str, bytes], settings: str) -> QuestionOutcome:
    """Answers a question in a process of its own, which starts a worker's: what runs on the cluster. The process is new, and not a
    fork of Ray's, which has threads."""
    import pickle
    import subprocess

    done = subprocess.run(
        [sys.executable, "-P", "-m", "windtunnel.service.work.ray_worker", "answer"],
        input=pickle.dumps((question, files, settings)), stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    if done.returncode:
        error = error_table("WorkerEnded", f"the process of the question ended with exit code {done.returncode}.")
        return QuestionOutcome(error=error, again=True)
    outcome: QuestionOutcome = pickle.loads(done.stdout)  # written by the process that was started here, and by nobody else
    return outcome


def answer_here() -> None:
    """The process that `answer_apart` starts: a question on standard input, its outcome on standard output."""
    import os
    import pickle
    from dataclasses import replace

    from windtunnel.service.work.attempt import Attempt
    from windtunnel.service.work.confine import installation

    question, files, line = pickle.loads(sys.stdin.buffer.read())
    out = os.dup(1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        settings = replace(ServiceSettings.of_json(line), folder=folder)
        blobs = Blobs(Path(folder) / "blobs")
        kept = {name: blobs.put(data) for name, data in files.items()}
        stored = StoredQuestion(
            question.key, question.verb, question.words, kept, question.outputs, question.json, question.command
        )
        outcome = Attempt(stored, blobs, settings, installation()).wait(lambda: True, settings.job_seconds)
    with open(out, "wb") as file:
        pickle.dump(outcome, file)


class RayWorker(Worker):
    """Keeps up to MOST_AT_ONCE questions on the cluster, and extends their leases."""

    def __init__(self, settings: ServiceSettings, owner: str) -> None:
        super().__init__(settings, owner)
        try:
            import ray
        except ModuleNotFoundError as error:
            raise NotInstalled("--workers ray needs Ray. Type: pip install 'windtunnel[search]'") from error
        self._ray: Any = ray
        ray.init(address=settings.ray, log_to_driver=False, configure_logging=False)
        self._task: Any = ray.remote(num_cpus=settings.job_cores, max_retries=0)(answer_apart)
        self._running: dict[Any, Claim] = {}

    def _round(self) -> bool:
        """Claims one question, and ends those that have been answered. Returns whether there was anything to do."""
        claim = self.queue.claim(self.owner) if len(self._running) < MOST_AT_ONCE else None
        if claim is not None:
            files = {name: self.blobs.get(digest) for name, digest in claim.question.files.items()}
            if None in files.values():
                self.queue.fail(claim, error_table("UploadLost", "an upload is no longer kept: ask again."))
            else:
                self._running[self._task.remote(claim.question, files, self.settings.to_json())] = claim
        ended = self._ray.wait(list(self._running), num_returns=1, timeout=0)[0] if self._running else []
        for one in ended:
            self._take(one, self._running.pop(one))
        return claim is not None or bool(ended)

    def _take(self, one: Any, claim: Claim) -> None:
        try:
            outcome: QuestionOutcome = self._ray.get(one)
        except self._ray.exceptions.RayError as error:
            outcome = QuestionOutcome(error=error_table("WorkerEnded", f"Ray: {type(error).__name__}."), again=True)
        self._end(claim, outcome)
        say(f"ended {claim.job}")

    def _beat_all(self) -> None:
        for one, claim in list(self._running.items()):
            state = self.queue.beat(claim, None, "on the Ray cluster", "")
            if state != "go":
                self._ray.cancel(one, force=True)
                del self._running[one]
                if state == "cancel":
                    self.queue.fail(claim, error_table("Cancelled", "the job was cancelled."), state="cancelled")

    def work(self) -> None:
        """One round, a look at the leases, and a wait where there was nothing to do."""
        import time

        if time.monotonic() > getattr(self, "_following", 0.0):
            self._following = time.monotonic() + min(BEAT_SECONDS, self.settings.lease / 3)
            self._beat_all()
        if not self._round():
            self.listen(0.05 if self._running else 0.5)

    def close(self) -> None:
        """Lets what is on the cluster wait again."""
        for one, claim in self._running.items():
            self._ray.cancel(one, force=True)
            self.queue.give_back(claim)


def main() -> None:
    """Runs it: `python -P -m windtunnel.service.work.ray_worker OWNER`; with the word `answer`, one question."""
    if sys.argv[1:2] == ["answer"]:
        answer_here()
        return
    settings = read_settings()
    if settings is None:
        return
    worker = RayWorker(settings, sys.argv[1])
    say("ready")
    worker.run()


if __name__ == "__main__":
    main()
