"""Tensor lifetimes through the caching allocator: what a stage's process reserves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from windtunnel.memory.allocator import Block, CachingAllocator, OutOfMemory
from windtunnel.memory.allocator_settings import settings_of
from windtunnel.memory.lifetimes import lifetimes
from windtunnel.workload.graph import Workload

MOST_PLAYED = 3
"""Of stages that run equal blocks, at most this many are replayed; another one fragments as its nearest neighbour among them."""


@dataclass(frozen=True)
class Pooled:
    """What the allocator came to, in bytes. `failed`: it found no room in pieces that were large enough, even after `retries`."""

    allocated: float
    reserved: float
    retries: int
    failed: bool


def pooled(workload: Workload, stage: int, limit: float) -> Pooled:
    """What `stage` reserves where CUDA has `limit` bytes to give."""
    pool = CachingAllocator(settings_of(workload.job.runtime.alloc_conf), limit)
    live: dict[int, Block] = {}
    failed = False
    try:
        for tensor, size, stream, _, _ in lifetimes(workload, stage):
            if size > 0.0:
                live[tensor] = pool.malloc(size, stream)
            else:
                pool.free(live.pop(tensor))
    except OutOfMemory:
        failed = True
    return Pooled(pool.peak_allocated, pool.peak_reserved, pool.retries, failed)


class Replays:
    """Replays of a job's stages, run when somebody looks.

    `allocated` bytes of each stage are those of its sums, `limits` those that CUDA would give (infinite: does not fit anyway).
    """

    def __init__(self, workload: Workload, allocated: tuple[float, ...], limits: tuple[float, ...]) -> None:
        self.workload, self.allocated, self.limits = workload, allocated, limits
        self._done: dict[int, Pooled] = {}

    def share(self, stage: int) -> float:
        """Reserved in the replay beyond what the sums say is allocated, as a fraction of the latter; may be negative."""
        near = self._near(stage)
        return self.of(stage).reserved / self.allocated[near] - 1.0

    def of(self, stage: int) -> Pooled:
        """The replay of `stage` or of the nearest stage that stands for it."""
        near = self._near(stage)
        if near not in self._done:
            self._done[near] = pooled(self.workload, near, self.limits[near])
        return self._done[near]

    def _near(self, stage: int) -> int:
        return min(self._standing[stage], key=lambda other: (abs(other - stage), other))

    @cached_property
    def _standing(self) -> tuple[tuple[int, ...], ...]:
        """For each stage, the stages with equal blocks that are replayed: first, middle and last of them."""
        alike: dict[object, list[int]] = {}
        for stage, chunks in enumerate(self.workload.stages):
            alike.setdefault(chunks, []).append(stage)
        chosen = {blocks: tuple(dict.fromkeys(stages[round(i * (len(stages) - 1) / (MOST_PLAYED - 1))] for i in range(MOST_PLAYED)))
                  for blocks, stages in alike.items()}
        return tuple(chosen[chunks] for chunks in self.workload.stages)
