"""The one way by which code of the monitor runs inside a job: a fault of it ends the watching, never the job.

Whatever PyTorch, Python or the script calls of ours (replaced functions, hooks, callbacks, threads, actions after an import) is
made by a `Fence`. Imports nothing of windtunnel, because the start-up hook loads this file alone.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

_NOTHING = object()


class _Call:
    """What the script's own function did inside one of ours."""

    __slots__ = ("result", "error")

    def __init__(self) -> None:
        self.result: Any = _NOTHING
        self.error: BaseException | None = None


class Fence:
    """Functions of ours that others call. After the first fault of one, all of them only pass calls on.

    Only an `Exception` of our own code is a fault. What the script's function raises goes through unchanged, and so does what a
    handler of a signal raises while our code runs: a launcher ends its ranks in that way.
    """

    def __init__(self, what: str = "this rank is not watched any more", on_fault: Callable[[str], object] | None = None) -> None:
        self.intact = True
        self.entries: set[str] = set()
        """Names of the functions that were made, for tests."""
        self._what, self._on_fault = what, on_fault
        self._local = threading.local()

    def wrap(self, original: Any, make: Callable[[Any], Any], name: str = "") -> Any:
        """A function that does what `make(original)` does, or, where that fails, what `original` does. `original` is called once:
        if our code fails behind it, its result is returned.
        """
        local = self._local
        self.entries.add(name or getattr(original, "__qualname__", repr(original)))

        def call_original(*args: Any, **options: Any) -> Any:
            call = local.call
            try:
                call.result = result = original(*args, **options)
            except BaseException as error:
                call.error = error
                raise
            return result

        inner = make(call_original)

        def passed_on(*args: Any, **options: Any) -> Any:
            if not self.intact:
                return original(*args, **options)
            outer = getattr(local, "call", None)
            call = local.call = _Call()
            try:
                return inner(*args, **options)
            except Exception as error:
                if error is call.error or is_of_signal(error):
                    raise
                self.end(error)
                if call.error is not None:
                    raise call.error from None
                if call.result is not _NOTHING:
                    return call.result
            finally:
                local.call = outer
            return original(*args, **options)

        return passed_on

    def hook(self, action: Callable[..., Any], otherwise: Any = None, name: str = "") -> Callable[..., Any]:
        """A function that does what `action` does, and returns `otherwise` where that fails or has failed before."""
        self.entries.add(name or getattr(action, "__qualname__", repr(action)))

        def hook(*args: Any, **options: Any) -> Any:
            if not self.intact:
                return otherwise
            try:
                return action(*args, **options)
            except Exception as error:
                if is_of_signal(error):
                    raise
                self.end(error)
                return otherwise

        return hook

    def end(self, error: BaseException) -> None:
        """Ends the watching for a fault, and tells it once."""
        if self.intact:
            self.intact = False
            why = describe(error)
            tell(f"{self._what}: {why}")
            try:
                if self._on_fault is not None:
                    self._on_fault(why)
            except Exception as further:  # the record of the fault is lost too
                tell(f"the records do not say so: {describe(further)}")


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a system says of a disk, or of a share of it, that is full."""


class _LossyFile(io.FileIO):
    """A file that loses what its disk has no room for."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return len(memoryview(data).cast("B"))


def lose_output_on_full_disk() -> None:
    """Standard output and error of this process, where they are files, lose lines on a full disk, and raise nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and _is_file(stream):
            stream.flush()
            raw = _LossyFile(stream.fileno(), "w", closefd=False)
            buffer: Any = raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw)
            lossy = io.TextIOWrapper(
                buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering, write_through=stream.write_through
            )
            setattr(sys, name, lossy)
            setattr(sys, f"__{name}__", lossy)


def _is_file(stream: Any) -> bool:
    return os.path.isfile(f"/proc/self/fd/{stream.fileno()}")


def open_log(path: str | os.PathLike[str]) -> IO[bytes]:
    """A log to append to; nowhere, where the disk has no room for it or may not be written: its writer is more than its words."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "ab")
    except OSError as error:
        tell(f"what goes to {os.fspath(path)} is lost: {describe(error)}")
        return open(os.devnull, "ab")


def tell(text: str) -> None:
    """A line on standard error, if that can be written."""
    try:
        sys.stderr.write(f"windtunnel fleet: {text}\n")
        sys.stderr.flush()
    except Exception:  # closed, or on a full disk
        return


def describe(error: BaseException) -> str:
    """Kind and message of a fault, on one line."""
    try:
        message = " ".join(str(error).split())[:300]
    except Exception:  # an exception that cannot be printed
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def is_of_signal(error: BaseException) -> bool:
    """Whether a handler of a signal raised `error` while our code ran: a part of its traceback is the handler's."""
    codes = {code for number in signal.valid_signals() if (code := _code_of(_handler(number))) is not None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _handler(number: int) -> Any:
    try:
        return signal.getsignal(number)
    except ValueError:
        return None


def _code_of(handler: Any) -> Any:
    """The code of a handler in Python; None for the system's."""
    for _ in range(4):
        if hasattr(handler, "func"):
            handler = handler.func
        elif hasattr(handler, "__func__"):
            handler = handler.__func__
    if not callable(handler) or isinstance(handler, signal.Handlers):
        return None
    return getattr(handler, "__code__", None) or getattr(vars(type(handler)).get("__call__"), "__code__", None)
