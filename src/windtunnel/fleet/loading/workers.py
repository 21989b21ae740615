"""Worker processes of the reader: a job names samples and a slot; the worker reads, transforms and collates them and writes the
batch into the slot. Order of samples: a function of seed and epoch alone, so that any batch can be reproduced.

Serialization of batches and exceptions. The arrays of a batch are used in place.

Pickle's protocol 5 keeps arrays outside of its stream; here they follow it at aligned offsets. Torch tensors are sent as the bytes
of their storage.
"""

from __future__ import annotations

import ctypes
import io
import os
import pickle
import random
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError, SpecError, WindtunnelError


@dataclass(frozen=True)
class EpochOrder:
    """Batches of `batch_size` samples for each of `shares` data-parallel ranks, from `samples` in total.

    Samples are distributed as in torch's DistributedSampler: sample i of the epoch's order belongs to share i mod `shares`. Samples
    that do not fill a batch on every share are left out of the epoch. With `drop_last` False the order wraps around until every
    share has the same number of samples, and the last batch is short.
    """

    samples: int
    batch_size: int
    shares: int = 1
    shuffle: bool = False
    seed: int = 0
    drop_last: bool = True

    def __post_init__(self) -> None:
        for name in ("batch_size", "shares"):
            if getattr(self, name) < 1:
                raise SpecError(name, getattr(self, name), "1 and more")
        if not self.steps:
            least = self.batch_size * self.shares if self.drop_last else 1
            raise PlanError(
                "dataset",
                f"{self.samples} samples",
                f"{least} and more",
                "An epoch has no batch otherwise. Make batch_size smaller.",
            )

    @property
    def steps(self) -> int:
        """Batches per epoch on each share."""
        if self.drop_last:
            return self.samples // (self.batch_size * self.shares)
        each = -(-self.samples // self.shares)
        return -(-each // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """All samples of `epoch`, int64 (samples,)."""
        if not self.shuffle:
            return np.arange(self.samples)
        return np.random.default_rng([self.seed, epoch]).permutation(self.samples)

    def share(self, epoch: int, coordinate: int) -> np.ndarray:
        """Samples of one share, int64, in order."""
        order = self.order(epoch)
        if self.drop_last:
            order = order[: self.steps * self.batch_size * self.shares]
        elif len(order) % self.shares:
            order = np.resize(order, -(-self.samples // self.shares) * self.shares)
        return order[coordinate :: self.shares]

    def batches(self, epoch: int, coordinate: int = 0) -> Iterator[list[int]]:
        """Indices of each batch of a share: a `batch_sampler` for a plain DataLoader."""
        mine = self.share(epoch, coordinate)
        for at in range(0, len(mine), self.batch_size):
            yield mine[at : at + self.batch_size].tolist()


_ALIGN = 64
_HEAD = struct.Struct("<QQ")


class ReaderError(WindtunnelError):
    """The node's reader or one of its workers is gone, or an exception of the dataset could not be pickled."""


def _tensor(raw: np.ndarray, dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    if not raw.size:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.from_numpy(raw).view(getattr(torch, dtype)).view(shape)


class _Packer(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        torch = sys.modules.get("torch")
        if (
            torch is None
            or type(thing) is not torch.Tensor
            or thing.layout != torch.strided
            or thing.is_quantized
            or thing.is_complex()
        ):
            return NotImplemented
        flat = thing.detach().cpu().contiguous().reshape(-1)
        return _tensor, (flat.view(torch.uint8).numpy(), str(thing.dtype).removeprefix("torch."), tuple(thing.shape))


def pack(thing: Any) -> list[bytes | memoryview]:
    """Pieces that represent `thing` when written one after the other; the first contains the offsets of the others."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Packer(stream, 5, buffer_callback=buffers.append).dump(thing)
    words = stream.getvalue()
    raws = [buffer.raw() for buffer in buffers]
    head = _HEAD.pack(len(words), len(raws)) + struct.pack(f"<{len(raws)}Q", *(raw.nbytes for raw in raws)) + words
    pieces: list[bytes | memoryview] = [head]
    size = len(head)
    for raw in raws:
        pieces += [bytes(-size % _ALIGN), raw]
        size += -size % _ALIGN + raw.nbytes
    return pieces


def unpack(memory: memoryview) -> Any:
    """The packed object. Its arrays are views of `memory` and keep it alive."""
    words, count = _HEAD.unpack_from(memory)
    sizes = struct.unpack_from(f"<{count}Q", memory, _HEAD.size)
    at = _HEAD.size + 8 * count
    stream = memory[at : at + words]
    at += words
    buffers = []
    for size in sizes:
        at += -at % _ALIGN
        buffers.append(memory[at : at + size])
        at += size
    return pickle.loads(stream, buffers=buffers)


def pack_error(error: BaseException) -> bytes:
    """An exception with the text of its traceback."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(words := pickle.dumps(error))
    except Exception:  # it cannot be pickled, but its text can
        words = pickle.dumps(ReaderError(f"{type(error).__name__}: {error}"))
    return pickle.dumps((words, text))


def unpack_error(blob: bytes) -> BaseException:
    """The exception, of its own type, with the reader's traceback as a note."""
    words, text = pickle.loads(blob)
    error: BaseException = pickle.loads(words)
    if isinstance(error, StopIteration):  # it would silently end the rank's loop
        error = RuntimeError("the dataset raised StopIteration")
    error.add_note(f"In the node's reader:\n{text}")
    return error


def stack(samples: list[Any]) -> Any:
    """Stacks samples to a batch of numpy arrays, through nested dicts, lists and tuples; strings stay lists. The default without
    torch.
    """
    first = samples[0]
    if isinstance(first, dict):
        return {key: stack([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple):
        parts = [stack(list(part)) for part in zip(*samples, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if isinstance(first, list):
        return [stack(list(part)) for part in zip(*samples, strict=True)]
    return list(samples) if isinstance(first, (str, bytes)) else np.stack([np.asarray(sample) for sample in samples])


def default_collate() -> Callable[[list[Any]], Any]:
    """Torch's default_collate, or `stack` without torch."""
    try:
        from torch.utils.data import default_collate as collate
    except ImportError:
        return stack
    chosen: Callable[[list[Any]], Any] = collate
    return chosen


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
