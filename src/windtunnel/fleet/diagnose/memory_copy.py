"""Copy rate of host memory with one thread per core of the process. Counts reads and writes."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.fleet.diagnose.registry import MeasuredFigure, SelfTestOptions


def measure(options: SelfTestOptions) -> MeasuredFigure:
    """Bytes read and written per second. The copy is compared with its source at the end."""
    workers = len(os.sched_getaffinity(0))
    words = max(1, options.size // 8 // workers)
    sources = [np.arange(worker, worker + words, dtype=np.int64) for worker in range(workers)]
    copies = [np.zeros_like(source) for source in sources]
    until = time.monotonic() + options.seconds
    begun = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        rounds = sum(pool.map(_copy, sources, copies, [until] * workers))
    took = time.perf_counter() - begun
    same = all(bool((source == copy).all()) for source, copy in zip(sources, copies, strict=True))
    return MeasuredFigure(
        2.0 * rounds * words * 8 / took, f"numpy, {workers} threads", "" if same else "a copy differs from its source"
    )


def _copy(source: Int64s, copy: Int64s, until: float) -> int:
    """Copies until the time is over, at least once; returns the number of copies."""
    rounds = 0
    while rounds == 0 or time.monotonic() < until:
        np.copyto(copy, source)
        rounds += 1
    return rounds
