"""Functions for training scripts: `start`, `stop`, `step`, `section`, `micro_batch`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from windtunnel.fleet.fence import Fence, is_of_signal, tell
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.settings import PREFIX, WatchSettings, settings_of
from windtunnel.records.sections import Section

_OWNER = PREFIX + "PID"
"""Id of the monitored process. Workers of a DataLoader and other children inherit RANK but must not write into its ring."""


class _Monitor:
    """The monitor of this process, if there is one, and the patches that wait until the rank is known."""

    session: Any = None
    waiting: Patches | None = None
    fork_seen = False


def start(settings: WatchSettings | None = None, **changes: Any) -> None:
    """Starts the monitor; no effect if it runs. `changes` are fields of WatchSettings that override those from the environment.

    If RANK is not set and no process group exists, it starts with the first process group or optimizer step. SpecError for an
    invalid setting, FileError if the folder of the rings cannot be written.
    """
    if _Monitor.session is not None or os.environ.get(_OWNER, str(os.getpid())) != str(os.getpid()):
        return
    chosen = replace(settings or settings_of(), **changes)
    chosen.call_interval()
    import torch.distributed as dist

    if "RANK" in os.environ or (dist.is_available() and dist.is_initialized()):
        _begin(chosen)
    elif _Monitor.waiting is None:
        _wait_for_rank(chosen)


def stop() -> None:
    """Restores every replaced function and leaves the ring on disk; no effect if no monitor runs."""
    if _Monitor.waiting is not None:
        _Monitor.waiting.restore()
        _Monitor.waiting = None
    if _Monitor.session is not None:
        _Monitor.session.stop()
        _Monitor.session = None
        os.environ.pop(_OWNER, None)


def active() -> bool:
    """Whether a monitor runs in this process."""
    return _Monitor.session is not None


@contextmanager
def section(name: str) -> Iterator[None]:
    """Records a named range of the script (Section.RANGE)."""
    session = _Monitor.session
    mark = session.fence.hook(_open_section)(session.recorder, name) if session is not None else None
    try:
        yield
    finally:
        if mark is not None:
            session.fence.hook(session.recorder.close)(mark)


def _open_section(recorder: Any, name: str) -> Any:
    return recorder.open_range(Section.RANGE, recorder.name(name))


def micro_batch(index: int) -> None:
    """Assigns the following forwards and backwards to micro batch `index` of the step; -1: they are counted."""
    if _Monitor.session is not None:
        _Monitor.session.recorder.micro_batch = index


def step() -> None:
    """Marks the end of a step, for loops that do not use torch.optim. After the first call, optimizers no longer end steps."""
    if _Monitor.session is not None:
        _Monitor.session.steps.by_hand = True
        _Monitor.session.fence.hook(_Monitor.session.steps.end_step)()


def auto_start() -> None:
    """`start` for unchanged scripts: an error is printed as one line, and the script continues."""
    with _goes_on_unwatched():
        start()


@contextmanager
def _goes_on_unwatched() -> Iterator[None]:
    """An error of the monitor is printed as one line: it must not end the training."""
    try:
        yield
    except Exception as error:
        if is_of_signal(error):
            raise
        tell(f"this rank is not watched: {error}")


def _begin(settings: WatchSettings) -> None:
    from windtunnel.fleet.watch.session import WatchSession

    if _Monitor.waiting is not None:
        _Monitor.waiting.restore()
        _Monitor.waiting = None
    if not _Monitor.fork_seen:
        _Monitor.fork_seen = True
        os.register_at_fork(after_in_child=Fence("a forked child may be watched as its parent").hook(_leave_parent_ring))
    _Monitor.session = WatchSession(settings)
    os.environ[_OWNER] = str(os.getpid())


def _wait_for_rank(settings: WatchSettings) -> None:
    import torch.distributed as dist
    from torch.optim import optimizer

    patches = _Monitor.waiting = Patches()

    def make(original: Any) -> Any:
        def init_process_group(*args: Any, **options: Any) -> Any:
            done = original(*args, **options)
            if _Monitor.waiting is patches:
                with _goes_on_unwatched():
                    _begin(settings)
            return done

        return init_process_group

    if dist.is_available():
        patches.wrap(dist, "init_process_group", make)

    def begin_now(*_: Any) -> None:
        if _Monitor.waiting is patches:
            with _goes_on_unwatched():
                _begin(settings)

    patches.on_restore(optimizer.register_optimizer_step_pre_hook(patches.fence.hook(begin_now)).remove)


def _leave_parent_ring() -> None:
    if _Monitor.session is not None:
        _Monitor.session.detach_child()
        _Monitor.session = None
    _Monitor.waiting = None
