"""Profiler traces that a running rank is asked for: the files by which one asks, and what came of it.

Who asks writes `traces/rank5.ask` into the run's folder. The rank sees it at the end of a step, takes it away, and writes
`rank5-step120.json.gz` when the asked steps are over, or `rank5.failed` with a sentence. No connection, no signal, no restart.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

from windtunnel.base.errors import FileError, SpecError
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import ring_path

FOLDER = "traces"
MOST_STEPS = 100
"""Steps of one trace: a profiler keeps all events in memory until the last."""
_LOOK = 0.2
"""Seconds between two looks for what the rank has written."""


def ask_path(run: Path, rank: int) -> Path:
    """The file by which a rank is asked."""
    return run / FOLDER / f"rank{rank}.ask"


def failed_path(run: Path, rank: int) -> Path:
    """The file in which a rank says why it could not."""
    return run / FOLDER / f"rank{rank}.failed"


def trace_path(run: Path, rank: int, step: int) -> Path:
    """The trace of a rank that begins after a step."""
    return run / FOLDER / f"rank{rank}-step{step}.json.gz"


def ask_for_trace(run: Path, rank: int, steps: int) -> None:
    """Asks a rank for a trace of its next steps. SpecError for a rank that the run does not have, or that has ended; FileError
    where the folder cannot be written."""
    ring = ring_path(run, rank)
    if not ring.exists():
        raise SpecError("--rank", str(rank), f"a rank whose ring lies in {run}", "A trace is taken by the rank, where it runs.")
    if not 1 <= steps <= MOST_STEPS:
        raise SpecError("--steps", str(steps), f"1 to {MOST_STEPS}")
    reader = RingReader(ring)
    try:
        gone = reader.meta.host == socket.gethostname() and not Path(f"/proc/{reader.meta.pid}").exists()
        if gone or reader.read(0).ended is not None:
            raise SpecError("--rank", f"{rank}, which has ended", "a rank that trains", f"The run: {run}")
    finally:
        reader.close()
    try:
        (run / FOLDER).mkdir(mode=0o700, exist_ok=True)
        failed_path(run, rank).unlink(missing_ok=True)
        new = failed_path(run, rank).with_suffix(".new")
        new.touch(0o600)
        new.write_text(json.dumps({"steps": steps}), encoding="utf-8")
        new.replace(ask_path(run, rank))  # at once: the rank may look now
    except OSError as error:
        raise FileError("RUN", str(run), "a folder that can be written", f"{error.strerror}.") from error


def await_trace(run: Path, rank: int, seconds: float, waits: Callable[[], None] | None = None) -> Path:
    """The trace that a rank writes after it was asked. `waits`: called at each look. SpecError where the rank could not, or writes
    none within `seconds`: what was asked is then taken back."""
    known = set(_traces(run, rank))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if new := sorted(set(_traces(run, rank)) - known):
            return new[-1]
        with contextlib.suppress(OSError):
            why = failed_path(run, rank).read_text(encoding="utf-8")
            raise SpecError("--rank", f"rank {rank} took no trace: {why}", "a rank whose profiler is free")
        if waits is not None:
            waits()
        time.sleep(_LOOK)
    taken = not ask_path(run, rank).exists()
    ask_path(run, rank).unlink(missing_ok=True)
    what = "has begun its trace and not ended the steps" if taken else "has ended no step"
    raise SpecError(
        "--wait", f"{seconds:g} s, in which rank {rank} {what}", "more seconds", f"Does it move? windtunnel fleet hang {run}"
    )


def _traces(run: Path, rank: int) -> list[Path]:
    return list((run / FOLDER).glob(f"rank{rank}-step*.json.gz"))
