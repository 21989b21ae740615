"""Tensor lifetimes through the caching allocator: what a stage's process reserves, and how its memory lies at the highest point."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from windtunnel.memory.allocator import Block, CachingAllocator, OutOfMemory
from windtunnel.memory.allocator_settings import settings_of
from windtunnel.memory.lifetimes import Event, lifetimes
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


@dataclass
class Played:
    """An allocator after some events, and the live block of each tensor with its label."""

    allocator: CachingAllocator
    blocks: dict[int, tuple[Block, str]] = field(default_factory=dict)

    def run(self, events: Iterable[Event]) -> None:
        """Plays events; raises OutOfMemory."""
        malloc, free, blocks = self.allocator.malloc, self.allocator.free, self.blocks
        for tensor, size, stream, label in events:
            if size > 0.0:
                blocks[tensor] = malloc(size, stream), label
            else:
                free(blocks.pop(tensor)[0])


def pooled(workload: Workload, stage: int, limit: float) -> Pooled:
    """What `stage` reserves where CUDA has `limit` bytes to give."""
    played = Played(CachingAllocator(settings_of(workload.job.runtime.alloc_conf), limit))
    failed = False
    try:
        played.run(lifetimes(workload, stage))
    except OutOfMemory:
        failed = True
    pool = played.allocator
    return Pooled(pool.peak_allocated, pool.peak_reserved, pool.retries, failed)


@dataclass(frozen=True)
class Replays:
    """Replays of a job's stages, run when somebody looks.

    `allocated` bytes of each stage are those of its sums, `limits` those that CUDA would give (infinite: does not fit anyway).
    """

    workload: Workload
    allocated: tuple[float, ...]
    limits: tuple[float, ...]

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
    def _done(self) -> dict[int, Pooled]:
        return {}

    @cached_property
    def _standing(self) -> tuple[tuple[int, ...], ...]:
        """For each stage, the stages with equal blocks that are replayed: first, middle and last of them."""
        alike: dict[object, list[int]] = {}
        for stage, chunks in enumerate(self.workload.stages):
            alike.setdefault(chunks, []).append(stage)
        chosen = {blocks: tuple(dict.fromkeys(stages[round(i * (len(stages) - 1) / (MOST_PLAYED - 1))] for i in range(MOST_PLAYED)))
                  for blocks, stages in alike.items()}
        return tuple(chosen[chunks] for chunks in self.workload.stages)


def at_peak(workload: Workload, stage: int, limit: float = math.inf) -> tuple[Played, list[Event]]:
    """The allocator of `stage` when most is allocated, and all events up to there. Raises OutOfMemory."""
    events = lifetimes(workload, stage)
    level = highest = 0.0
    last = 0
    for place, event in enumerate(events):
        level += event.size
        if level > highest:
            highest, last = level, place
    played = Played(CachingAllocator(settings_of(workload.job.runtime.alloc_conf), limit))
    played.run(events[:last + 1])
    return played, events[:last + 1]

