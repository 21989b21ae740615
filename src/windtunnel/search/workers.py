"""Who predicts the plans that bounds cannot rule out: this process, others on this machine, or a Ray cluster.

A task is (frame, change); frames, the jobs that changes apply to, travel once. A worker that dies costs its tasks of the moment:
they run again.

Workers on a Ray cluster. Ray runs a task again whose worker died.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from typing import Any, Protocol

from windtunnel.base.errors import EngineError, SpecError
from windtunnel.base.processes import count_cores
from windtunnel.base.units import host_port
from windtunnel.search.change import Change
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
        return RayWorkers(frames, margin, ray, count)
    count = count or count_cores()
    return Here(frames, margin) if count == 1 else Processes(frames, margin, count)


RETRIES = 10
"""Times that Ray starts a trial again after its worker died."""

ADDRESS = "the address of a Ray cluster, such as ray:10.0.0.1:6379"

PATIENCE = 5.0
"""Seconds for a cluster's address to answer; Ray itself tries for minutes."""

STORE = 128 * 2**20
"""Bytes of the object store of a local cluster: jobs and outcomes are small."""


class RayWorkers:
    """Trials as Ray tasks on the cluster at `address`; "auto": the one that RAY_ADDRESS names, else `count` workers here.

    `windtunnel` has to be installed on the cluster's nodes. Raises SpecError if Ray is not installed or the cluster does not
    answer.
    """

    def __init__(self, frames: Sequence[Job], margin: float, address: str, count: int | None) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError:
            raise SpecError("--on", "ray", "ray, which is not installed", "Type: pip install 'windtunnel[search]'.") from None
        self.ray = ray
        where = os.environ.get("RAY_ADDRESS", "local") if address == "auto" else address
        self.ours = not ray.is_initialized()
        if self.ours:
            _connect(ray, where, count)
        self.slots = 3 * max(1, int(ray.cluster_resources().get("CPU", 1.0)))
        self.frames, self.margin = ray.put(tuple(frames)), margin
        self.task = ray.remote(num_cpus=1, max_retries=RETRIES)(_trial)
        self.under_way: dict[Any, Trial] = {}

    def submit(self, trial: Trial) -> None:
        self.under_way[self.task.remote(self.frames, trial.frame, trial.change, self.margin, trial.anyway)] = trial

    def next(self) -> tuple[Trial, PlanOutcome]:
        done, _ = self.ray.wait(list(self.under_way), num_returns=1)
        trial = self.under_way.pop(done[0])
        try:
            return trial, self.ray.get(done[0])
        except self.ray.exceptions.RayError as error:
            raise EngineError(f"Ray gave up on a plan after {RETRIES} tries: {str(error).splitlines()[0]}") from None

    def close(self) -> None:
        for reference in self.under_way:
            self.ray.cancel(reference, force=True)
        self.under_way = {}
        if self.ours:
            self.ray.shutdown()


def _connect(ray: Any, where: str, count: int | None) -> None:
    """Connects to the cluster at `where`, or starts one here ("local"); SpecError if it does not answer."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    local: dict[str, Any] = {}
    if where == "local":
        local = {"num_cpus": count, "include_dashboard": False, "object_store_memory": STORE}
    try:
        if where != "local":
            _answers(where)
        _join(ray, where, local)
    except (OSError, RuntimeError, ValueError) as error:
        hint = f"It does not answer: {str(error).splitlines()[0]}. `ray status --address {where}` shows whether it runs."
        raise SpecError("--on", f"ray:{where}", ADDRESS, hint) from None


def _join(ray: Any, where: str, local: dict[str, Any]) -> None:
    """`ray.init`. Ray gives a node of its own 30 s to start, which is little on a busy machine: it is tried three times."""
    for left in (2, 1, 0):
        try:
            ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, **local)
            return
        except Exception as error:  # ray raises no class of its own for this
            if "timed out during startup" not in str(error):
                raise
            if left == 0:
                raise EngineError("Ray did not start on this machine within 90 s; try --jobs instead of --on ray") from None


def _answers(where: str) -> None:
    """OSError if nothing listens at HOST:PORT or ray://HOST:PORT; SpecError if it is no address."""
    socket.create_connection(host_port(where.removeprefix("ray://"), "--on", ADDRESS, "It is not HOST:PORT."), PATIENCE).close()


def _trial(frames: Sequence[Job], frame: int, change: Change, margin: float, anyway: bool) -> PlanOutcome:
    """Runs on a worker of the cluster."""
    return outcome_of(frames[frame], change, margin, anyway)
