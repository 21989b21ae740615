"""One thread that runs functions in order, and that a process can leave behind when it ends: a disk that does not answer then holds
nothing up. (The threads of `concurrent.futures` are joined at the end of a process, without a limit.)
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class DaemonExecutor(Executor):
    """Runs what is submitted in one daemon thread, in order."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future of `fn(*args, **kwargs)`."""
        future: Future[Any] = Future()
        self._queue.put((future, lambda: fn(*args, **kwargs)))
        return future

    def finish(self, limit: float) -> bool:
        """Runs what is queued and ends the thread; whether that took no longer than `limit` seconds."""
        self._queue.put(None)
        self._thread.join(limit)
        return not self._thread.is_alive()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `concurrent.futures.Executor.shutdown`."""
        self._queue.put(None)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        while (one := self._queue.get()) is not None:
            future, function = one
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:
                    with contextlib.suppress(Exception):
                        future.set_exception(error)
                else:
                    future.set_result(result)
