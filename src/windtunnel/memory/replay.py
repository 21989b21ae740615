"""Replay of tensor lifetimes by the caching allocator: the bytes that a stage's process reserves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.memory.allocator import CachingAllocator, OutOfMemory, PoolBlock
from windtunnel.memory.allocator_settings import settings_of
from windtunnel.memory.lifetimes import lifetimes
from windtunnel.memory.result import StageMemory
from windtunnel.workload.graph import Workload


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
