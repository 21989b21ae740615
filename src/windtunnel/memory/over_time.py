"""A stage's memory over one step, by content: the replay of full steps with times. Replay of tensor lifetimes by the caching
allocator: the bytes that a stage's process reserves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.errors import SpecError
from windtunnel.memory.allocator import CachingAllocator, OutOfMemory, PoolBlock, settings_of
from windtunnel.memory.lifetimes import TensorContent, lifetimes
from windtunnel.memory.result import StageMemory
from windtunnel.workload.graph import Workload

PARTS = tuple(content.name.lower() for content in TensorContent)
"""Keys of tensor contents, in the order of a picture from bottom to top."""


MOMENTS = 400
"""Moments of a stage that are drawn, or written as JSON, at most."""


@dataclass(frozen=True)
class NoRoom:
    """An allocation that found no room: after `time` seconds of the first or second `step`, of `size` bytes for `content`, one of
    PARTS, while `held` bytes of each part were there, in `reserved` of at most `limit` bytes of segments."""

    step: int
    time: float
    size: float
    content: str
    held: dict[str, float]
    reserved: float
    limit: float


@dataclass(frozen=True)
class OverTime:
    """Bytes of one stage's fullest GPU at n moments of a step, `time` [n] in seconds.

    `parts` [n, PARTS] are tensors; `reserved` [n] what the allocator holds for them; `context` lies outside it.
    """

    stage: int
    time: Floats
    parts: Floats
    reserved: Floats
    context: float
    capacity: float
    no_room: NoRoom | None = None
    """Where the allocator ran out of memory: the end of the moments."""

    @property
    def allocated(self) -> Floats:
        """[n] all tensors."""
        return np.asarray(self.parts.sum(axis=1))

    @property
    def shown(self) -> Floats:
        """[n] total bytes, as nvidia-smi shows them."""
        return self.reserved + self.context

    def thin(self, most: int) -> OverTime:
        """At most about `most` moments: of each interval the one with most allocated."""
        if len(self.time) <= most:
            return self
        edges = np.unique(np.linspace(0, len(self.time), most + 1).astype(np.int64))
        level = self.allocated
        keep = np.array([a + int(level[a:b].argmax()) for a, b in zip(edges[:-1], edges[1:], strict=True)])
        return OverTime(
            self.stage, self.time[keep], self.parts[keep], self.reserved[keep], self.context, self.capacity, self.no_room
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data of at most `MOMENTS` moments: lists by part and in all, bytes at `time_s`."""
        thin = self.thin(MOMENTS)
        parts = {part: thin.parts[:, at] for at, part in enumerate(PARTS)}
        return {
            "stage": thin.stage,
            "time_s": thin.time,
            **parts,
            "allocated": thin.allocated,
            "reserved": thin.reserved,
            "shown": thin.shown,
            "context": thin.context,
            "capacity": thin.capacity,
            "no_room": None if thin.no_room is None else vars(thin.no_room),
        }


def over_time(
    workload: Workload,
    stage: int,
    times: Sequence[tuple[float, float]],
    context: float,
    limit: float,
    until_full: bool = False,
) -> OverTime:
    """The second step of `stage` moment by moment; `times` are begin and end in seconds of its passes in order, then of its update.

    CUDA can provide `limit` bytes. Raises SpecError for a wrong number of times, OutOfMemory if the allocator has no room; with
    `until_full` the moments end there instead, in the step in which that is, with `no_room`.
    """
    passes = len(workload.schedule[stage])
    if len(times) != passes + 1:
        raise SpecError("times", len(times), f"one for each of the stage's {passes} passes, and one for the update")
    job = workload.job
    pool = CachingAllocator(settings_of(job.runtime.alloc_conf), limit)
    live: dict[int, PoolBlock] = {}
    parts = np.zeros(len(PARTS))
    turns: list[int] = []
    levels: list[Floats] = []
    reserved: list[float] = []
    events = lifetimes(workload, stage, whole=True)
    full: tuple[OutOfMemory, TensorContent, int] | None = None
    for tensor, size, stream, content, _, _, turn in events:
        if turn == passes + 1 and turns and turns[-1] <= passes and turns[-1] != turn - passes - 1:
            turns, levels, reserved = [], [], []  # the second step begins
        if size > 0.0:
            try:
                live[tensor] = pool.malloc(size, stream)
            except OutOfMemory as error:
                if not until_full:
                    raise
                full = (error, TensorContent(content), turn)
                break
        else:
            pool.free(live.pop(tensor))
        parts[content] += size
        turns.append(turn % (passes + 1))
        levels.append(parts.copy())
        reserved.append(pool.reserved)
    at = np.array(turns, np.int64)
    time = _times_of(at, times, passes)
    no_room = None
    if full is not None:
        time = np.minimum.accumulate(time[::-1])[::-1]  # what is there before the first step begins belongs to its begin
        no_room = _no_room(*full, float(time[-1]) if len(time) else times[0][0], parts, passes)
    return OverTime(
        stage,
        np.maximum.accumulate(time),
        np.maximum(np.array(levels), 0.0),
        np.array(reserved, np.float64),
        context,
        float(job.cluster.gpu.memory),
        no_room,
    )


def _times_of(turns: Int64s, times: Sequence[tuple[float, float]], passes: int) -> Floats:
    """Seconds of allocations, which lie evenly in the passes that they belong to."""
    begin, end = np.array(times).T
    count = np.bincount(turns, minlength=passes + 1)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    share = (np.arange(len(turns)) - first[turns]) / np.maximum(count[turns], 1)
    return np.asarray(begin[turns] + share * (end[turns] - begin[turns]))


def _no_room(lack: OutOfMemory, content: TensorContent, turn: int, when: float, parts: Floats, passes: int) -> NoRoom:
    """The end of the moments: a tensor of `content` that found no room beside `parts`."""
    held = {name: float(size) for name, size in zip(PARTS, np.maximum(parts, 0.0), strict=True)}
    step = 1 + turn // (passes + 1)
    return NoRoom(step, when, float(lack.size), content.name.lower(), held, float(lack.reserved), float(lack.limit))


@dataclass(frozen=True)
class Pooled:
    """Peaks of the allocator, in bytes.

    `failed`: no free block was large enough, even after `retries`.
    """

    allocated: float
    reserved: float
    retries: int
    failed: bool

    @property
    def fragmentation(self) -> float:
        """Bytes reserved less allocated, each at its own highest point."""
        return self.reserved - self.allocated


def replay_pool(workload: Workload, stage: int, limit: float) -> Pooled:
    """Bytes that `stage` reserves if CUDA can provide `limit` bytes."""
    pool = CachingAllocator(settings_of(workload.job.runtime.alloc_conf), limit)
    live: dict[int, PoolBlock] = {}
    failed = False
    try:
        for tensor, size, stream, *_ in lifetimes(workload, stage):
            if size > 0.0:
                live[tensor] = pool.malloc(size, stream)
            else:
                pool.free(live.pop(tensor))
    except OutOfMemory:
        failed = True
    return Pooled(pool.peak_allocated, pool.peak_reserved, pool.retries, failed)


def replay(workload: Workload, memory: Sequence[StageMemory]) -> tuple[Pooled, ...]:
    """Reserved memory of each stage by a replay of PyTorch's allocator, to compare with the sums of `memory_of`.

    CUDA can provide the GPU's memory less the stage's context; a stage that does not fit gets what it asks for. Takes
    15 to 80 ms a stage. Raises SpecError for a `runtime.alloc_conf` that PyTorch would refuse.
    """
    return tuple(replay_pool(workload, m.stage, m.usable - m.context if m.fits else math.inf) for m in memory)
