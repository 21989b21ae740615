"""Takes a profiler trace of this rank's next steps when a file asks for it (`fleet.tracing`)."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from windtunnel.fleet import tracing
from windtunnel.fleet.tracing import MOST_STEPS, failed_path, trace_path

LOOK = 0.5
"""Seconds between two looks for a request: one `stat` costs a few microseconds, or a millisecond over NFS."""


class TraceTaker:
    """Called at the end of each step. An error of the profiler is told to who asked, and never to the training."""

    def __init__(self, run: Path, rank: int) -> None:
        self._run, self._rank = run, rank
        self._ask = os.fspath(tracing.ask_path(run, rank))
        self._next = 0.0
        self._profiler: Any = None
        self._left = 0

    def end_step(self, step: int) -> None:
        """`step`: the number of the step that ends."""
        if self._profiler is not None:
            self._go_on()
        elif (now := time.monotonic()) >= self._next:
            self._next = now + LOOK
            if os.path.exists(self._ask):
                self._begin(step)

    def _begin(self, step: int) -> None:
        try:
            steps = int(json.loads(Path(self._ask).read_text(encoding="utf-8"))["steps"])
            os.unlink(self._ask)
            self._left = min(max(steps, 1), MOST_STEPS) + 1
            path = trace_path(self._run, self._rank, step)
            self._profiler = _profiler(self._left - 1, partial(_keep, path))
            self._profiler.start()
        except Exception as error:  # whatever is wrong with the file or the profiler, training goes on
            self._fail(error)

    def _go_on(self) -> None:
        try:
            self._profiler.step()
            self._left -= 1
            if self._left <= 0:
                profiler, self._profiler = self._profiler, None
                profiler.stop()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        profiler, self._profiler = self._profiler, None
        with contextlib.suppress(Exception):
            if profiler is not None:
                profiler.stop()
        with contextlib.suppress(OSError):
            os.unlink(self._ask)
        with contextlib.suppress(OSError):
            failed_path(self._run, self._rank).write_text(f"{type(error).__name__}: {error}"[:400], encoding="utf-8")


def _keep(path: Path, profiler: Any) -> None:
    """Writes a trace that is whole once its name is there."""
    part = path.with_name("." + path.name)  # gzip by its name
    profiler.export_chrome_trace(os.fspath(part))
    part.replace(path)


def _profiler(steps: int, ready: Callable[[Any], None]) -> Any:
    """A profiler of the host and, where the process uses one, its GPU; one step before the first is not kept."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
    return profile(activities=activities, schedule=plan, on_trace_ready=ready, record_shapes=True)
