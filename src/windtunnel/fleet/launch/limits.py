"""How long the processes beside a job may take, and a question that is given up when its time is over."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class BesideLimits:
    """Seconds. What a job is watched by may not hold up its end: whatever has not ended by then is killed."""

    start_seconds: float = 60.0
    """For the collector to start, and for another node to make the secrets."""
    monitor_seconds: float = 2.0
    """For the monitor to end, after the command."""
    ship_seconds: float = 10.0
    """For the shipper to send the rest."""
    others_seconds: float = 20.0
    """For ranks on other nodes to end, as long as they are heard of."""
    ask_seconds: float = 2.0
    """For one answer of the collector while other nodes are waited for."""
    collector_seconds: float = 8.0
    """For the collector to end."""
    summary_seconds: float = 15.0
    """For reading and judging the records, for the summary."""


def ask_within(seconds: float, question: Callable[[], list[str]]) -> list[str] | None:
    """The answer of `question`, worked out in a forked process; None if it takes longer than `seconds` or dies.

    A thread would not do: code that keeps the interpreter's lock would hold its caller up too.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(writing, question)
    os.close(writing)
    raw, until = b"", time.monotonic() + seconds
    try:
        while (left := until - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                break
            raw += part
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _reap(child)
    try:
        lines = json.loads(raw)
    except ValueError:
        return None
    return [str(line) for line in lines]


def _answer(writing: int, question: Callable[[], list[str]]) -> None:
    """In the forked process: writes the answer, and ends without the caller's clean-up."""
    code = 1
    try:
        raw = json.dumps(question()).encode()
        while raw:
            raw = raw[os.write(writing, raw) :]
        code = 0
    finally:
        os._exit(code)


def _reap(child: int) -> None:
    """Takes the exit status of a killed child; gives up on one that the kernel cannot end, such as in a read of a dead disk."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        try:
            if os.waitpid(child, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.005)
