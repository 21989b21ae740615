"""A service of a test: a process of its own, on a free port of loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 120.0
"""Seconds for whatever has to happen at all, however busy the machine is."""


class ServedProcess:
    """`windtunnel serve` on `folder` with further `options`, ended with the block."""

    def __init__(self, folder: Path, options: Sequence[str] = (), *, workers: int | str = 2, token: str | None = None) -> None:
        self.log = folder.with_name(f"{folder.name}.log")
        """What it wrote on standard error."""
        self.folder, self._options, self._workers, self.token = folder, list(options), workers, token
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> ServedProcess:
        """Starts it, again after `kill`; the port stays."""
        command = [sys.executable, "-m", "windtunnel", "serve", "--dir", str(self.folder), "--port", str(self.port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WINDTUNNEL_")}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, "--workers", str(self._workers), *self._options], stdout=subprocess.PIPE, stderr=log, text=True,
                env=environment,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " at http" in line, line
        self.port = int(line.rsplit(":", 1)[1])
        return self

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
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def __enter__(self) -> ServedProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

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
