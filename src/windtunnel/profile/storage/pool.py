"""Ranks as processes that do the same at the same time, for as long as the clock allows.

They are forked, as a DataLoader's workers are: a start of PyTorch for each would take longer than what is measured. A process that
waits for a disk cannot be ended at once; nobody waits for it, and its files have no names.
"""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from windtunnel.profile.storage.place import DiskFiles
from windtunnel.profile.storage.rank import DiskRank, Timed, Took


class NoTimeLeftError(Exception):
    """The clock has ended what ranks do."""


LEAVING = 0.2
"""s that ended processes are waited for."""


class RankPool:
    """`count` processes with files in `folder`, for a `with` block. `ends`: on the monotonic clock, after which
    NoTimeLeftError is raised. OSError where the folder takes no file."""

    def __init__(self, folder: str, count: int, ends: float, torch: Any) -> None:
        self.folder, self.count, self.ends, self.torch = folder, count, ends, torch
        self.started: list[tuple[int, Connection]] = []

    def __enter__(self) -> RankPool:
        files = DiskFiles(self.folder)
        with files.create() as tokens:  # the ranks keep it
            for rank in range(self.count):
                here, there = Pipe()
                process = os.fork()
                if not process:
                    here.close()  # so that the end of this process ends the rank
                    self._serve(DiskRank(files, time.monotonic, self.torch, rank, tokens), there)  # does not return
                there.close()
                self.started.append((process, here))
        return self

    def __exit__(self, *error: object) -> None:
        for process, connection in self.started:
            connection.close()
            os.kill(process, signal.SIGKILL)
        until = time.monotonic() + LEAVING
        left = [process for process, _ in self.started]
        while left and time.monotonic() < until:
            left = [process for process in left if os.waitpid(process, os.WNOHANG) == (0, 0)]
            time.sleep(LEAVING / 100)

    def ask_ranks(self, name: str, ranks: int, *asked: Any) -> list[Took]:
        """What each of the first `ranks` took for the method `name` of `DiskRank`. OSError of a rank, NoTimeLeftError."""
        try:
            return self._ask([connection for _, connection in self.started[:ranks]], name, asked)
        except (ConnectionError, EOFError) as error:
            raise OSError("a rank was killed") from error

    def _ask(self, chosen: list[Connection], name: str, asked: tuple[Any, ...]) -> list[Took]:
        for connection in chosen:
            connection.send((name, asked))
        ready = [self._receive(connection) for connection in chosen]
        failed = next((answer for answer in ready if answer is not None), None)
        for connection, answer in zip(chosen, ready, strict=True):
            if answer is None:
                connection.send(failed is None)
        if failed is None:
            ready = [self._receive(connection) for connection in chosen]
            failed = next((answer for answer in ready if isinstance(answer, OSError)), None)
        if failed is not None:
            raise failed
        return ready

    def _receive(self, connection: Connection) -> Any:
        if not connection.poll(max(0.0, self.ends - time.monotonic())):
            raise NoTimeLeftError
        return connection.recv()

    def _serve(self, rank: DiskRank, connection: Connection) -> None:
        """The life of a rank's process."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):  # else a supervisor waits for the end of its output
                os.dup2(nowhere, descriptor)
            self.torch.set_num_threads(1)
            while True:
                name, asked = connection.recv()
                try:
                    work = getattr(rank, name)(*asked)
                    next(work)
                    connection.send(None)
                    if connection.recv():
                        connection.send(finish(work))
                except (MemoryError, OSError, RuntimeError) as error:
                    connection.send(system_error(error))
        finally:
            os._exit(0)


def finish(work: Timed) -> Took:
    """What a method of a rank that has yielded still does."""
    try:
        next(work)
    except StopIteration as done:
        took: Took = done.value
        return took
    raise AssertionError("a rank's method yields once")


def system_error(error: BaseException) -> OSError:
    """What the system said; PyTorch has words of its own for a stream that takes no more."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return OSError(cause.errno, cause.strerror or str(cause))
        cause = cause.__cause__ or cause.__context__
    return OSError(0, (str(error).splitlines() or [type(error).__name__])[0][:120])


def span_of(took: list[Took]) -> float:
    """Seconds from the first rank's begin to the last one's end."""
    return max(one.end for one in took) - min(one.begin for one in took)
