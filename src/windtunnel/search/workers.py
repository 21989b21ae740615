"""Who predicts the plans that bounds cannot rule out: this process, others on this machine, or a Ray cluster.

A task is (frame, change); frames, the jobs that changes apply to, travel once. A worker that dies costs its tasks of the moment:
they run again.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol

from windtunnel.base.errors import EngineError
from windtunnel.search.outcome import PlanOutcome, Trial, outcome_of
from windtunnel.spec import Job


class Workers(Protocol):
    """Predicts trials in any order."""

    slots: int
    """Trials that should be under way at a time."""

    def submit(self, trial: Trial) -> None:
        """Begins a trial."""

    def next(self) -> tuple[Trial, PlanOutcome]:
        """Waits for one trial that has ended."""

    def close(self) -> None:
        """Ends the workers; trials under way are lost."""


class Here:
    """This process, one trial after the other."""

    slots = 1

    def __init__(self, frames: Sequence[Job], margin: float) -> None:
        self.frames, self.margin = frames, margin
        self.waiting: list[Trial] = []

    def submit(self, trial: Trial) -> None:
        self.waiting.append(trial)

    def next(self) -> tuple[Trial, PlanOutcome]:
        trial = self.waiting.pop(0)
        return trial, outcome_of(self.frames[trial.frame], trial.change, self.margin, trial.anyway)

    def close(self) -> None:
        self.waiting.clear()


_FRAMES: Sequence[Job] = ()
_MARGIN = 0.0


def _begin(frames: Sequence[Job], margin: float) -> None:
    """What a worker process keeps between trials."""
    global _FRAMES, _MARGIN  # one pool a process
    _FRAMES, _MARGIN = frames, margin


def _run(trial: Trial) -> PlanOutcome:
    return outcome_of(_FRAMES[trial.frame], trial.change, _MARGIN, trial.anyway)


class Processes:
    """Worker processes on this machine. A pool that loses one is made anew, at most `RESTARTS` times."""

    RESTARTS = 5

    def __init__(self, frames: Sequence[Job], margin: float, count: int) -> None:
        self.frames, self.margin, self.count = frames, margin, count
        self.slots, self.restarts = 2 * count, 0
        self.under_way: dict[Future[PlanOutcome], Trial] = {}
        self.pool = self._pool()

    def _pool(self) -> ProcessPoolExecutor:
        method = "fork" if sys.platform == "linux" else "spawn"  # a fork has everything imported
        return ProcessPoolExecutor(
            self.count, multiprocessing.get_context(method), initializer=_begin, initargs=(self.frames, self.margin)
        )

    def submit(self, trial: Trial) -> None:
        try:
            self.under_way[self.pool.submit(_run, trial)] = trial
        except BrokenProcessPool:
            self._restart_pool()
            self.submit(trial)

    def next(self) -> tuple[Trial, PlanOutcome]:
        while True:
            done, _ = wait(self.under_way, return_when=FIRST_COMPLETED)
            future = next(iter(done))
            try:
                outcome = future.result()
            except BrokenProcessPool:
                self._restart_pool()
                continue
            return self.under_way.pop(future), outcome

    def _restart_pool(self) -> None:
        """Replaces a broken pool and submits again what was under way."""
        self.restarts += 1
        if self.restarts > self.RESTARTS:
            raise EngineError(f"worker processes died {self.restarts} times; try --jobs 1, or a machine with more memory")
        lost = [trial for trial in self.under_way.values()]
        self.under_way = {}
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.pool = self._pool()
        for trial in lost:
            self.submit(trial)

    def close(self) -> None:
        for process in list((self.pool._processes or {}).values()):  # they may be in the middle of a long step
            process.terminate()
        self.pool.shutdown(wait=False, cancel_futures=True)


def workers_of(frames: Sequence[Job], margin: float, count: int | None, ray: str | None) -> Workers:
    """`count` processes (None: one for each core of this process), or with `ray` the cluster at that address ("auto": a local
    one)."""
    if ray is not None:
        from windtunnel.search.ray_workers import RayWorkers

        return RayWorkers(frames, margin, ray, count)
    count = count or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count or os.cpu_count() or 1
    return Here(frames, margin) if count == 1 else Processes(frames, margin, count)
