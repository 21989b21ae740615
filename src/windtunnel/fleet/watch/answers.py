"""Answers an alarm that asks this rank for its stacks and PyTorch's record of its calls (`fleet.dumps`), from the thread of the
heartbeat: it runs while the others wait. Takes a profiler trace of this rank's next steps when a file asks for it
(`fleet.tracing`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from windtunnel.base.text import redact
from windtunnel.fleet import tracing
from windtunnel.fleet.starting import DUMPS, ask_path
from windtunnel.fleet.tracing import MOST_STEPS, failed_path, trace_path

LOOK = 1.0
"""Seconds between two looks for a request: one `stat` costs a few microseconds, or a millisecond over NFS."""
MOST_STACKS, MOST_FLIGHT = 1 << 18, 1 << 25
"""Bytes of a file; a larger record is not written."""


class DumpAnswers:
    """Called at each heartbeat. An error is written as the answer: neither the job nor its watching ends by it."""

    def __init__(self, run: Path, rank: int) -> None:
        self._run, self._rank, self._next = run, rank, 0.0
        self._ask = os.fspath(ask_path(run, rank))

    def look(self) -> None:
        """Answers, if a file asks for it."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK
        if os.path.exists(self._ask):
            try:
                self._answer()
            except Exception:  # a folder that was deleted, a full disk: who asked goes on without
                return

    def _answer(self) -> None:
        with open(self._ask, encoding="ascii") as file:
            stem = self._run / DUMPS / f"{int(file.read())}-rank{self._rank}"
        try:
            _write(stem.with_suffix(".stacks"), redact(stacks_of_threads()).encode("utf-8", "replace")[:MOST_STACKS])
            record = flight_record()
            if 0 < len(record) <= MOST_FLIGHT:
                _write(stem.with_suffix(".flight"), record)
        finally:
            os.unlink(self._ask)


def stacks_of_threads() -> str:
    """Stacks of all threads but this one, the main one first; the innermost frame of each comes last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main, own = threading.main_thread().ident, threading.get_ident()
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)
    return "\n".join(
        f"Thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames if ident != own
    )


def flight_record() -> bytes:
    """What PyTorch has recorded of its calls, as its own dumps are; empty where it records none."""
    core: Any = sys.modules.get("torch._C._distributed_c10d")
    dist: Any = sys.modules.get("torch.distributed")
    dump = getattr(core, "_dump_fr_trace", None) or getattr(core, "_dump_nccl_trace", None)
    if dump is None or dist is None or not dist.is_initialized():
        return b""
    try:
        return bytes(dump(includeStackTraces=False))
    except (TypeError, RuntimeError):  # of an earlier version, or a build without a recorder
        return b""


def _write(path: Path, raw: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(raw)


_LOOK_FOR_TRACES = 0.5
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
            self._next = now + _LOOK_FOR_TRACES
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
