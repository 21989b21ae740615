"""A stage's memory over one step, by content: the replay of full steps with times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.errors import SpecError
from windtunnel.memory.allocator import CachingAllocator, PoolBlock
from windtunnel.memory.allocator_settings import settings_of
from windtunnel.memory.lifetimes import Content, lifetimes
from windtunnel.workload.graph import Workload

PARTS = tuple(content.name.lower() for content in Content)
"""Keys of tensor contents, in the order of a picture from bottom to top."""


MOMENTS = 400
"""Moments of a stage that are drawn, or written as JSON, at most."""


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
        return OverTime(self.stage, self.time[keep], self.parts[keep], self.reserved[keep], self.context, self.capacity)

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
        }


def over_time(workload: Workload, stage: int, times: Sequence[tuple[float, float]], context: float, limit: float) -> OverTime:
    """The second step of `stage` moment by moment; `times` are begin and end in seconds of its passes in order, then of its update.

    CUDA can provide `limit` bytes. Raises SpecError for a wrong number of times, OutOfMemory if the allocator has no room.
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
    for tensor, size, stream, content, _, _, turn in lifetimes(workload, stage, whole=True):
        if size > 0.0:
            live[tensor] = pool.malloc(size, stream)
        else:
            pool.free(live.pop(tensor))
        parts[content] += size
        if turn > passes:  # the second step
            turns.append(turn - passes - 1)
            levels.append(parts.copy())
            reserved.append(pool.reserved)
    at = np.array(turns, np.int64)
    begin, end = np.array(times).T
    count = np.bincount(at, minlength=passes + 1)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    share = (np.arange(len(at)) - first[at]) / np.maximum(count[at], 1)
    time = begin[at] + share * (end[at] - begin[at])
    return OverTime(
        stage,
        np.maximum.accumulate(time),
        np.maximum(np.array(levels), 0.0),
        np.array(reserved, np.float64),
        context,
        float(job.cluster.gpu.memory),
    )
