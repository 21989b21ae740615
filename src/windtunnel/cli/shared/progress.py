"""A progress bar for work that takes over a second, and a Ctrl-C handler that keeps partial results."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from windtunnel.cli.shared.common import is_terminal, notes

if TYPE_CHECKING:
    from rich.progress import Progress

_BETWEEN = 0.1  # seconds

watchers: list[Callable[[str, float | None], None]] = []
"""Called with what is done and its finished share (None: not known), where another program shows the progress of a command."""


def tell_watchers(what: str) -> Callable[[float], None]:
    """The report of a share to `watchers`, at most ten times a second; the first one is told at once."""
    following = time.monotonic()

    def report(share: float) -> None:
        nonlocal following
        if time.monotonic() >= following:
            following = time.monotonic() + _BETWEEN
            for watcher in watchers:
                watcher(what, share)

    for watcher in watchers:
        watcher(what, None)
    return report


@contextmanager
def bar(what: str) -> Iterator[Callable[[float], None]]:
    """Yields a function that takes the finished share.

    The bar is drawn on standard error if that is a terminal, from the first report after a second on.
    """
    if watchers:
        yield tell_watchers(what)
        return
    if not is_terminal():
        yield _no_report
        return
    shown: Progress | None = None
    following = time.monotonic() + 1.0

    def report(share: float) -> None:
        nonlocal following, shown
        if time.monotonic() <= following:
            return
        following = time.monotonic() + _BETWEEN
        shown = shown or _progress(what)
        if shown.console.is_terminal:
            shown.start()
            shown.update(shown.task_ids[0], completed=share)

    try:
        yield report
    finally:
        if shown is not None and shown.live.is_started:
            shown.stop()


def _no_report(share: float) -> None:
    """The report of a share where no terminal shows it."""


def _progress(what: str) -> Progress:
    """The bar; rich is imported here, so that work of less than a second does not pay for it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    shown = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=notes(), transient=True)
    shown.add_task(what, total=1.0)
    return shown


@contextmanager
def stoppable(what: str) -> Iterator[Callable[[float], bool]]:
    """Yields a bar's function that also returns whether to stop.

    The first Ctrl-C asks the work to stop at its next report; the second one ends it at once.
    """
    stop_requested = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop_requested.is_set():
            raise KeyboardInterrupt
        stop_requested.set()

    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, ask) if here else None
    try:
        with bar(what) as shown:

            def report(share: float) -> bool:
                shown(share)
                return stop_requested.is_set()

            yield report
    finally:
        if here:
            signal.signal(signal.SIGINT, before)
