"""Worker processes of the reader: a job names samples and a slot; the worker reads, transforms and collates them and writes the
batch into the slot.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from windtunnel.fleet.loading.sample_order import EpochOrder
from windtunnel.fleet.loading.serialization import pack, pack_error

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ReadPlan:
    """What to read."""

    dataset: Any
    order: EpochOrder | None
    """None for an iterable dataset."""
    batch_size: int
    shares: int
    seed: int
    collate: Callable[[list[Any]], Any]
    start: tuple[int, int] = (0, 0)
    """Epoch and step."""
    state: Any = None
    """State of an iterable dataset at `start`."""


@dataclass(frozen=True)
class ReadJob:
    """Batch `step` of `epoch` for the share `lane`, to be written into `slot` of the lane."""

    lane: int
    slot: int
    number: int
    epoch: int
    step: int
    indices: list[int] | None
    """None for an iterable dataset."""


@dataclass(frozen=True)
class JobDone:
    """Result of a job."""

    job: ReadJob
    size: int = 0
    """Bytes of the batch in the job's slot."""
    ended: bool = False
    """True: the epoch has no such batch."""
    error: bytes = b""
    """A packed exception."""


def seed_transforms(seed: int, epoch: int, step: int, lane: int) -> None:
    """Seeds random, numpy and torch for one batch, so that its random transforms do not depend on earlier reads or on the
    worker.
    """
    word = int(np.random.SeedSequence([seed, epoch, step, lane]).generate_state(1)[0])
    random.seed(word)
    np.random.seed(word)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(word)


class _MapBatches:
    """Batches of a map-style dataset."""

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan

    def make(self, job: ReadJob) -> tuple[Any, Any] | None:
        """The batch, and no state."""
        assert job.indices is not None
        seed_transforms(self.plan.seed, job.epoch, job.step, job.lane)
        dataset = self.plan.dataset
        fetch = getattr(dataset, "__getitems__", None)
        samples = list(fetch(job.indices)) if fetch is not None else [dataset[index] for index in job.indices]
        return self.plan.collate(samples), None


class _StreamBatches:
    """Batches of an iterable dataset. Every step takes batch_size samples for each share in turn; samples for other nodes' shares
    are skipped.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self.plan, self.epoch, self.step = plan, -1, 0
        self.stream: Iterator[Any] = iter(())
        self.recent: dict[int, tuple[list[Any], Any]] = {}

    def make(self, job: ReadJob) -> tuple[Any, Any] | None:
        """The batch and the dataset's state after it; None at the end of the epoch."""
        if job.epoch != self.epoch:
            self._begin(job.epoch)
        while self.step <= job.step:
            samples = self._next()
            if samples is None:
                return None
            self.recent[self.step] = (samples, self._state())
            self.recent.pop(self.step - RECENT_STEPS, None)
            self.step += 1
        samples, state = self.recent[job.step]
        seed_transforms(self.plan.seed, job.epoch, job.step, job.lane)
        return self.plan.collate(samples[job.lane :: self.plan.shares]), state

    def _begin(self, epoch: int) -> None:
        plan, dataset = self.plan, self.plan.dataset
        self.epoch, self.step, self.recent = epoch, 0, {}
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(epoch)
        seed_transforms(plan.seed, epoch, 0, plan.shares)
        if epoch == plan.start[0] and plan.state is not None:
            dataset.load_state_dict(plan.state)
            self.step = plan.start[1]
        self.stream = iter(dataset)

    def _next(self) -> list[Any] | None:
        seed_transforms(self.plan.seed, self.epoch, self.step, self.plan.shares)
        samples = []
        for sample in self.stream:
            samples.append(sample)
            if len(samples) == self.plan.batch_size * self.plan.shares:
                return samples
        return None

    def _state(self) -> Any:
        return self.plan.dataset.state_dict() if hasattr(self.plan.dataset, "state_dict") else None


RECENT_STEPS = 64
"""Steps of a stream that are kept for the slowest lane of the node."""


def die_with_parent(parent: int) -> None:
    """Lets the kernel kill this process when its parent ends in any way."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def run_worker(connection: Connection, plan: ReadPlan, slots: dict[int, list[int]]) -> None:
    """Executes jobs until the connection closes. `slots`: file descriptors of each lane's slots."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    source = _MapBatches(plan) if plan.order is not None else _StreamBatches(plan)
    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        try:
            made = source.make(job)
            done = JobDone(job, ended=True) if made is None else JobDone(job, _write(slots[job.lane][job.slot], made))
        except BaseException as error:
            done = JobDone(job, error=pack_error(error))
        try:
            connection.send(done)
        except OSError:
            return


def _write(slot: int, made: tuple[Any, Any]) -> int:
    """Writes a batch into a slot, which grows as needed. Returns its bytes."""
    at = 0
    for piece in pack(made):
        view = memoryview(piece).cast("B") if len(piece) else memoryview(b"")
        while view:
            done = os.pwrite(slot, view, at)
            at += done
            view = view[done:]
    return at
