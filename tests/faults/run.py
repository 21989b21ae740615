"""Runs of the job under a fault, and what is read of them."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tests.faults.training import Job
from windtunnel.fleet.recorded import Recorded, recorded_of_rings
from windtunnel.fleet.wire.sockets import free_port

PATIENCE = 120.0
"""Seconds that a run may take: it is ended then, and the test with it."""


class Site(Protocol):
    """Where ranks run: a zygote, or several with machines of their own."""

    def start(self, job: Job, rank: int) -> int:
        """Forks a rank; its process id."""
        ...

    def wait(self, pid: int, seconds: float) -> int | None:
        """Exit status of a rank; None if it still runs after so many seconds."""
        ...


@contextmanager
def running(site: Site, job: Job) -> Iterator[dict[int, int]]:
    """Process ids of the ranks of a job that runs; they are ended when the block is left."""
    job = replace(job, port=job.port or free_port())
    pids = {rank: site.start(job, rank) for rank in range(job.ranks)}
    try:
        yield pids
    finally:
        for pid in pids.values():
            if site.wait(pid, 0.0) is None:
                os.kill(pid, signal.SIGKILL)
                site.wait(pid, 10.0)


def finished(site: Site, job: Job, fault: Callable[[dict[int, int]], None] = lambda pids: None) -> Recorded:
    """Runs a job to its end while `fault` acts on its processes (it ends when they do), and reads its records."""
    ended: dict[int, int | None] = {}
    job = replace(job, port=job.port or free_port())
    pids = {rank: site.start(job, rank) for rank in range(job.ranks)}
    thread = threading.Thread(target=fault, args=(pids,), daemon=True)
    thread.start()
    try:
        until = time.monotonic() + PATIENCE
        for pid in pids.values():
            ended[pid] = site.wait(pid, max(0.0, until - time.monotonic()))
    finally:
        for pid in pids.values():
            if ended.get(pid) is None:
                os.kill(pid, signal.SIGKILL)
                site.wait(pid, 10.0)
    thread.join(10.0)
    wrong = {rank: status for rank, pid in pids.items() if (status := ended[pid]) != 0}
    if wrong:
        logs = "\n".join(Path(job.folder, f"rank-{rank}.log").read_text(errors="replace")[-800:] for rank in list(wrong)[:2])
        raise RuntimeError(f"ranks ended with {wrong}\n{logs}")
    return recorded_of_rings(Path(job.folder, "job"))


@contextmanager
def folder() -> Iterator[str]:
    """A folder for the rings, in memory where there is such, removed afterwards."""
    path = tempfile.mkdtemp(prefix="windtunnel-faults-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def duty_cycle(rank: int, share: float, period: float = 0.02) -> Callable[[dict[int, int]], None]:
    """A fault: `rank` is stopped for `share` of the time, again and again."""

    def act(pids: dict[int, int]) -> None:
        pid = pids[rank]
        with suppress(ProcessLookupError):
            try:
                while True:
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(period * share)
                    os.kill(pid, signal.SIGCONT)
                    time.sleep(period * (1 - share))
            finally:
                os.kill(pid, signal.SIGCONT)

    return act
