"""A process that imports what a question needs while nobody waits, and answers it at once when it is asked."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_NICE = 10
_PR_SET_PDEATHSIG = 1


class PreparedAnswer:
    """Forks at once. The process runs each part of `prepare` in a thread at nice 10; once it is asked, what is left of them and
    then `question` at its caller's priority.

    A thread of the caller would not do: code that keeps the interpreter's lock would hold the caller up too. The process ignores
    the signals by which terminals and schedulers end a job, and ends with its caller. Must be made before the caller has threads.
    """

    def __init__(self, prepare: Sequence[Callable[[], object]], question: Callable[[Mapping[str, Any]], list[str]]) -> None:
        told, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        self._since = 0.0
        parent = os.getpid()
        try:
            self._child = os.fork()
        except OSError:
            self._child = -1  # no memory or no process left: there is no answer then
        if self._child == 0:
            os.close(self._ask)
            os.close(self._answer)
            _serve(parent, told, answer, prepare, question)
        os.close(told)
        os.close(answer)

    def ask(self, told: Mapping[str, Any]) -> None:
        """Asks the question about `told`, plain data. Never waits. To be called once."""
        self._since = time.monotonic()
        with contextlib.suppress(OSError):
            os.write(self._ask, json.dumps(dict(told)).encode())
        os.close(self._ask)
        self._ask = -1

    def take(self, seconds: float) -> list[str]:
        """The answer. TimeoutError if it has not come `seconds` after the question, EOFError if the process has died."""
        raw, until = b"", self._since + seconds
        while True:
            if not select.select([self._answer], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(self._answer, 1 << 16)
            if not part:
                break
            raw += part
        try:
            return [str(line) for line in json.loads(raw)]
        except ValueError:
            raise EOFError from None

    def close(self) -> None:
        """Ends the process, whatever it does."""
        for file in (self._ask, self._answer):
            if file >= 0:
                os.close(file)
        self._ask = self._answer = -1
        if self._child > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            _reap(self._child)
            self._child = -1


def _serve(
    parent: int, told: int, answer: int, prepare: Sequence[Callable[[], object]], question: Callable[[Mapping[str, Any]], list[str]]
) -> None:
    """In the forked process: waits, answers, and ends without the caller's clean-up."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a scheduler signals every process of the job
            signal.signal(number, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):
            os.dup2(nothing, file)
        parts = list(reversed(prepare))
        beside = threading.Thread(target=_prepare, args=(parts, True), daemon=True)
        beside.start()
        asked = b""
        while part := os.read(told, 1 << 16):
            asked += part
        if asked:
            left, parts[:] = list(parts), []
            with contextlib.suppress(OSError):  # only root may raise a priority
                os.setpriority(os.PRIO_PROCESS, beside.native_id or 0, os.getpriority(os.PRIO_PROCESS, 0))
            beside.join()  # two threads that import the same modules may see halves of them
            _prepare(left, False)
            raw = json.dumps(question(json.loads(asked))).encode()
            while raw:
                raw = raw[os.write(answer, raw) :]
        code = 0
    finally:
        os._exit(code)


def _prepare(parts: list[Callable[[], object]], low: bool) -> None:
    """Runs the parts from the last to the first, as long as there are some."""
    if low:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # of this thread only, on Linux
    with contextlib.suppress(IndexError):
        while True:
            part = parts.pop()
            with contextlib.suppress(Exception):  # the question says what is wrong
                part()


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
