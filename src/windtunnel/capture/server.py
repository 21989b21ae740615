"""Processes that have loaded PyTorch with the device, and fork a rank for each plan that they are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from windtunnel.base.errors import EngineError

_kept: dict[str, RankServer] | None = None


class RankServer:
    """One process, of a device and a kind of GPU. Ranks take no second to load PyTorch."""

    def __init__(self, library: str, card: dict[str, Any]) -> None:
        self._work = TemporaryDirectory()
        about, self._log = Path(self._work.name, "server.json"), Path(self._work.name, "server.log")
        about.write_text(json.dumps({"library": library, "card": card}))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "windtunnel.capture.rank", str(about)], stdin=subprocess.PIPE, stdout=log, stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def begin(self, plan: Path) -> None:
        """Starts the rank of a plan's file."""
        self._tell(str(plan))

    def read_status(self, plan: Path) -> int | None:
        """The exit status of a rank, negative for a signal; None while it runs. EngineError if the process itself has ended."""
        file = plan.with_suffix(".ended")
        if file.exists():
            return int(file.read_text())
        if self._process.poll() is not None:
            last = "\n".join(self._log.read_text(errors="replace").strip().splitlines()[-12:])
            raise EngineError(f"the process that loads PyTorch for the ranks ended with {self._process.returncode}:\n{last}")
        return None

    def stop(self) -> None:
        """Ends the ranks that run."""
        self._tell("stop")

    def close(self) -> None:
        """Ends the process and its ranks."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._work.cleanup()

    def _tell(self, line: str) -> None:
        if self._process.stdin is None or self._process.poll() is not None:
            return  # `read_status` says so
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            pass


@contextmanager
def kept_servers() -> Iterator[None]:
    """Captures within share their processes, one for each kind of GPU: PyTorch is loaded once for all of them. Limits of a process
    and the path of modules are those of the first capture."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        for server in _kept.values():
            server.close()
        _kept = before


@contextmanager
def server_of(library: str, card: dict[str, Any]) -> Iterator[RankServer]:
    """A kept process, or one of its own."""
    if _kept is not None:
        key = json.dumps([library, card])
        if key not in _kept:
            _kept[key] = RankServer(library, card)
        try:
            yield _kept[key]
        finally:
            _kept[key].stop()
        return
    server = RankServer(library, card)
    try:
        yield server
    finally:
        server.close()
