"""What a rank tells of its checkpoints: lines of `checkpoints-RANK.jsonl` in the run's folder (`records.checkpoint_events`)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.fleet.fence import describe, tell


def append_event(
    rank: int, event: str, step: int, *, blocking_seconds: float = 0.0, seconds: float = 0.0, bytes: int = 0,
    source: str = "storage", why: str = "",
) -> None:  # fmt: skip
    """Appends an event if `windtunnel fleet run` monitors the job (WINDTUNNEL_FLEET_DIR and _RUN are set); otherwise does nothing.
    Seconds are measured by this process. What cannot be written is told once: it must not end a save, or the job.
    """
    if event in ("load", "began"):
        _told.add(os.getpid())
    folder, run = os.environ.get("WINDTUNNEL_FLEET_DIR"), os.environ.get("WINDTUNNEL_FLEET_RUN")
    if not folder or not run:
        return
    line = {"event": event, "step": step, "unix": time.time(), "blocking_seconds": blocking_seconds, "seconds": seconds,
            "bytes": bytes, "source": source, **({"why": why} if why else {})}  # fmt: skip
    try:
        _append(Path(folder) / run, f"checkpoints-{rank}.jsonl", json.dumps(line) + "\n")
    except OSError as error:
        if os.getpid() not in _lost:
            _lost.add(os.getpid())
            tell(f"what this rank saves and loads is not recorded: {describe(error)}")


def _append(folder: Path, name: str, line: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


_lost: set[int] = set()
"""Processes that have told that an event was not written."""
_told: set[int] = set()
"""Processes that have told what they loaded: forked children inherit the set, and have other ids."""


def has_told_load() -> bool:
    """Whether this process has told what it loaded, or that it began without a checkpoint."""
    return os.getpid() in _told


def report_load(step: int) -> None:
    """Tells `windtunnel fleet` that this rank goes on from `step`: from a checkpoint that the script loaded by itself; 0: it
    begins without one. For scripts that use no `Checkpointer`; call it on every rank, once, before the first step. SpecError for
    a negative step."""
    if step < 0:
        raise SpecError("step", step, "the step of the checkpoint that was loaded, or 0")
    rank = int(os.environ.get("RANK", "0"))
    append_event(rank, "load" if step else "began", step, source="the script", why="" if step else "the script says so")
