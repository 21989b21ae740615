"""A service of a test: a process of its own, on a free port of loopback."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.forked_ranks import ForkedJob, RankForge, forge_of

PATIENCE = 120.0
"""Seconds for whatever has to happen at all, however busy the machine is."""


class ServedProcess:
    """`windtunnel serve` on `folder` with further `options`, in a process that is forked; ended with the block. `alone`: by a new
    interpreter, which sees the packages of the test's own environment."""

    def __init__(
        self, folder: Path, options: Sequence[str] = (), *, workers: int | str = 2, token: str | None = None, alone: bool = False
    ) -> None:
        script = Path(__file__).with_name("forked_services.py")
        self._own = RankForge(script, folder.parent) if alone else None
        self._forge = self._own or forge_of(script)
        self.log = folder.with_name(f"{folder.name}.log")
        """What it wrote on standard error."""
        self.folder, self._options, self._workers, self.token = folder, list(options), workers, token
        self._job: ForkedJob | None = None
        self.port = 0

    def start(self) -> ServedProcess:
        """Starts it, again after `end`; the port stays."""
        words = ["serve", "--dir", str(self.folder), "--port", str(self.port), "--workers", str(self._workers), *self._options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WINDTUNNEL_")}
        self._job = self._forge.started("command", 1, [words, environment, str(self.log)], {})
        until = time.monotonic() + PATIENCE
        while " at http" not in (line := self._job.files[0].read_text() if self._job.files[0].exists() else "") or line[-1] != "\n":
            assert time.monotonic() < until and Path(f"/proc/{self.pid}/cmdline").read_bytes(), self.log.read_text()
            time.sleep(0.005)
        self.port = int(line.split("\n")[0].rsplit(":", 1)[1])
        return self

    @property
    def pid(self) -> int:
        """Of the server."""
        assert self._job is not None
        return self._job.pids[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ready(self) -> ServedProcess:
        """Waits until a worker is."""
        until = time.monotonic() + PATIENCE
        while self.send("GET", "/readyz")[0] != 200:
            assert time.monotonic() < until, "no worker became ready"
            time.sleep(0.05)
        return self

    def end(self, number: int = signal.SIGTERM) -> None:
        """Ends it, with a signal."""
        if self._job is not None:
            os.kill(self.pid, number)
            self._forge.ended(self._job, PATIENCE)
            self._job = None

    def __enter__(self) -> ServedProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()
        if self._own is not None:
            self._own.close()

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, raw: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
        """One request: status, headers, body."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()

    def ask(self, verb: str, wait: float = 60, **arguments: Any) -> tuple[int, dict[str, str], bytes]:
        """A question; it waits for its answer."""
        return self.send("POST", f"/api/v1/{verb}", arguments, {"Prefer": f"wait={wait}"})

    def job(self, job: str) -> dict[str, Any]:
        """A job."""
        status, _, data = self.send("GET", f"/api/v1/jobs/{job}")
        assert status == 200, data
        found: dict[str, Any] = json.loads(data)
        return found

    def until(self, job: str, *states: str) -> dict[str, Any]:
        """The job when it is in one of these states."""
        until = time.monotonic() + PATIENCE
        while (found := self.job(job))["state"] not in states:
            assert time.monotonic() < until, found
            time.sleep(0.05)
        return found


def error_of(answer: tuple[int, dict[str, str], bytes]) -> dict[str, str]:
    """The table of an error."""
    found: dict[str, str] = json.loads(answer[2])["error"]
    return found
