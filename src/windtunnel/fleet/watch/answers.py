"""Answers an alarm that asks this rank for its stacks and PyTorch's record of its calls (`fleet.dumps`), from the thread of the
heartbeat: it runs while the others wait.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from windtunnel.base.text import redact
from windtunnel.fleet.starting import DUMPS, ask_path

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
