"""A bar for work that takes over a second, and a Ctrl-C that lets it end with what is known."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from windtunnel.cli.common import notes


@contextmanager
def stoppable(what: str) -> Iterator[Callable[[float], bool]]:
    """Gives a function that takes the share that is done and answers whether to stop.

    The first Ctrl-C asks the work to stop at its next report; the second one ends it at once. The bar is drawn on standard error
    where that is a terminal, from the first report after a second on.
    """
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, ask) if here else None
    console = notes()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)
    task = bar.add_task(what, total=1.0)
    began = time.monotonic()

    def report(share: float) -> bool:
        if console.is_terminal and time.monotonic() - began > 1.0:
            bar.start()
            bar.update(task, completed=share)
        return asked.is_set()

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
        if here:
            signal.signal(signal.SIGINT, before)
