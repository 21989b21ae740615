"""Tensor lifetimes through the caching allocator: what a stage's process reserves."""

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
    """What the allocator came to, in bytes, each figure at its highest.

    `failed`: it found no room in pieces that were large enough, even after `retries`.
    """

    allocated: float
    reserved: float
    retries: int
    failed: bool

    @property
    def fragmentation(self) -> float:
        """Bytes reserved less allocated, each at its own highest point."""
        return self.reserved - self.allocated


def pooled(workload: Workload, stage: int, limit: float) -> Pooled:
    """What `stage` reserves where CUDA has `limit` bytes to give."""
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
    """A second opinion on reserved memory: what PyTorch's allocator makes of each stage's tensors, beside `memory_of`'s sums.

    CUDA has as much to give as the GPU offers beside the stage's context; to a stage that does not fit, as much as it asks. Takes
    15 to 80 ms a stage. Raises SpecError for a `runtime.alloc_conf` that PyTorch would refuse.
    """
    return tuple(pooled(workload, m.stage, m.usable - m.context if m.fits else math.inf) for m in memory)
