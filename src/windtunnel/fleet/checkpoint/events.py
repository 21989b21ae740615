"""Event log of saves and loads: one JSON line each in the run's folder, `checkpoints-RANK.jsonl`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


def write_event(
    rank: int, event: str, step: int, *, blocking_seconds: float = 0.0, seconds: float = 0.0, bytes: int = 0,
    source: str = "storage", why: str = "",
) -> None:  # fmt: skip
    """Appends an event if `windtunnel fleet run` monitors the job (WINDTUNNEL_FLEET_DIR and _RUN are set); otherwise does nothing.

    `event`: save, commit, failed or load. `source` of a load: memory, neighbour or storage. `why`: reason of a failure, or the
    newer steps that a load skipped. Seconds are measured by this process.
    """
    folder, run = os.environ.get("WINDTUNNEL_FLEET_DIR"), os.environ.get("WINDTUNNEL_FLEET_RUN")
    if not folder or not run:
        return
    line = {"event": event, "step": step, "unix": time.time(), "blocking_seconds": blocking_seconds, "seconds": seconds,
            "bytes": bytes, "source": source, **({"why": why} if why else {})}  # fmt: skip
    path = Path(folder) / run
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path / f"checkpoints-{rank}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)
