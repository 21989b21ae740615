"""The workers of a server: started, told to look, started again when they end. Their standard output says which jobs have ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Callable

from windtunnel.service.settings import ServiceSettings

_AGAIN_SECONDS = 0.5
_PATIENCE = 5.0
_OWN = ("PYTHONPATH", "PATH", "LANG", "LC_ALL", "TZ", "HOME", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "RAY_ADDRESS",
        "COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")  # fmt: skip
"""What of the environment a worker is given: tokens and passwords are not among it."""


class WorkerPool:
    """Worker processes of this machine. `ended` is called with the id of a job that has ended, `lost` with the owner's name of a
    worker that is gone."""

    def __init__(self, settings: ServiceSettings, ended: Callable[[str], None], lost: Callable[[str], None]) -> None:
        self._settings, self._ended, self._lost = settings, ended, lost
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.ready = asyncio.Event()

    def start(self) -> None:
        """Starts them; with two or more, the first is kept for short questions."""
        number = self._settings.workers
        self._tasks = [asyncio.ensure_future(self._keep(place, place == 0 and number > 1)) for place in range(number)]

    def pids(self) -> list[int]:
        """Of the workers that run."""
        return [process.pid for process in self._processes.values() if process.returncode is None]

    def nudge(self) -> None:
        """Tells all workers to look for questions now."""
        for process in self._processes.values():
            if process.stdin is not None and not process.stdin.is_closing():
                process.stdin.write(b".")

    async def close(self) -> None:
        """Ends them: a question in work waits again."""
        self._stopping = True
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in list(self._processes.values()):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), _PATIENCE)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, place: int, short: bool) -> None:
        """One worker after the other, until the pool closes."""
        module = "windtunnel.service.work.ray_worker" if self._settings.ray is not None else "windtunnel.service.work.worker"
        kept = {name: os.environ[name] for name in _OWN if name in os.environ}
        threads = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        threads["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # a worker forks: it has one thread
        environment = {**kept, **threads, "PYDANTIC_DISABLE_PLUGINS": "__all__"}
        while not self._stopping:
            owner = f"{socket.gethostname()[:24]}:{secrets.token_hex(8)}"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", module, owner, *(["short"] if short else []), stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, env=environment,
            )  # fmt: skip
            assert process.stdin is not None and process.stdout is not None
            self._processes[place] = process
            process.stdin.write(self._settings.to_json().encode() + b"\n")
            while line := await process.stdout.readline():
                word, _, job = line.decode("ascii", "replace").strip().partition(" ")
                if word == "ended":
                    self._ended(job)
                elif word == "ready":
                    self.ready.set()
            await process.wait()
            self._lost(owner)
            if not self._stopping:
                await asyncio.sleep(_AGAIN_SECONDS)
