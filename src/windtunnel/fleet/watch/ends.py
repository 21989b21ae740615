"""How this process ends, as rows of its ring: an exception of the script or of a thread, an exit, a fault of native code.

What a process cannot say itself (a signal that ends it at once) its parent says, if it is watched too.

How the children of this process ended, for ranks that could not say it: torchrun and other launchers in Python are watched too.

A launcher learns of the end of a child from `subprocess` or `multiprocessing`. If the child has a ring, a row is appended to it.

What the kernel counts of a cgroup's memory: processes that it has killed because memory ran out.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing.util
import os
import re
import signal
import sys
import sysconfig
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.fleet.ring import RingMeta, RingReader, RingWriter, RowState, append_end
from windtunnel.fleet.rings import ring_files, ring_path
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.settings import PREFIX, settings_of
from windtunnel.records.ends import EndKind, end_line
from windtunnel.records.sections import Section

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Variable with the path at which torchrun looks for a rank's exception."""
FAULT_SUFFIX = ".fault"
"""Suffix of the file beside a ring into which Python writes its stack at a fault of native code."""
_LONGEST_MESSAGE = 300
_INSTALLED = (
    *{os.path.realpath(sysconfig.get_paths()[key]) for key in ("stdlib", "purelib", "platlib")},
    os.path.join(os.path.realpath(__file__).rpartition(os.path.join("fleet", "watch", ""))[0], ""),  # ours, in a checkout too
)


class EndWatch:
    """Writes the rows of kind `Section.END` of this process. The first exception or exit is the one that counts."""

    def __init__(self, ring: RingWriter, patches: Patches) -> None:
        self.ring, self.pid = ring, os.getpid()
        self._told = False
        self._code, self._exit_text = 0, "exit status 0"
        self._fault: Any = None
        patches.wrap(sys, "excepthook", self._around_excepthook)
        patches.wrap(sys, "unraisablehook", self._around_unraisable)
        patches.wrap(threading, "excepthook", self._around_thread)
        patches.wrap(sys, "exit", self._around_exit)
        patches.wrap(os, "_exit", self._around_hard_exit)
        patches.wrap(multiprocessing.util, "_exit_function", self._around_child_exit)
        self._write_faults()
        patches.on_restore(self._stop_faults)

    def finish(self) -> None:
        """Called at the interpreter's exit: writes how the process ends, and its exit status."""
        error = getattr(sys, "last_value", None)  # another excepthook may have taken the place of ours
        if not self._told and isinstance(error, BaseException) and not isinstance(error, SystemExit):
            self._tell_exception(error, error.__traceback__)
        if not self._told:
            self._write(EndKind.EXIT, self._exit_text)
        self.ring.mark_ended(self._code)

    def _write(self, kind: EndKind, text: str) -> None:
        number = self.ring.text("name", end_line(kind, text))
        now = self.ring.clock()
        self.ring.write(int(Section.END), self.ring.rows.step, now, 0, 0, state=RowState.DONE, name=number)

    def _tell_exception(self, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._told or os.getpid() != self.pid:
            return
        self._told, self._code = True, 1
        self._write(EndKind.RAISED, describe_exception(error, trace))
        write_error_file(error)

    def _around_excepthook(self, original: Any) -> Any:
        def note_exception(kind: Any, error: Any, trace: Any) -> None:
            with suppress(Exception):  # an error of the monitor must not hide the script's
                self._tell_exception(error, trace)
            original(kind, error, trace)

        return note_exception

    def _around_thread(self, original: Any) -> Any:
        def note_thread(args: Any) -> None:
            with suppress(Exception):
                if args.exc_type is not SystemExit and os.getpid() == self.pid:
                    name = args.thread.name if args.thread is not None else "a thread"
                    self._write(EndKind.THREAD, f"{name} raised {describe_exception(args.exc_value, args.exc_traceback)}")
            original(args)

        return note_thread

    def _around_unraisable(self, original: Any) -> Any:
        def note_unraisable(args: Any) -> None:
            with suppress(Exception):
                if "atexit" in str(args.err_msg or "") and os.getpid() == self.pid:
                    self._write(EndKind.IGNORED, describe_exception(args.exc_value, args.exc_traceback))
            original(args)

        return note_unraisable

    def _around_exit(self, original: Any) -> Any:
        def leave(status: Any = None, /) -> Any:
            with suppress(Exception):
                if threading.current_thread() is threading.main_thread() and os.getpid() == self.pid:
                    self._note_exit(status)
            original(status)

        return leave

    def _note_exit(self, status: Any) -> None:
        """The exit of a rank that `multiprocessing` started is asked for twice: where an exception is handled, and without it."""
        code, text = _exit_code(status), exit_text(status)
        if code != self._code or ", after " in text or ", after " not in self._exit_text:
            self._exit_text = text
        self._code = code

    def _around_child_exit(self, original: Any) -> Any:
        """A process that `multiprocessing` started prints its exception without `sys.excepthook`, after it has called this."""

        def leave(*args: Any, **options: Any) -> Any:
            with suppress(Exception):
                error = sys.exc_info()[1]
                if error is not None and not isinstance(error, SystemExit):
                    self._tell_exception(error, error.__traceback__)
            original(*args, **options)

        return leave

    def _around_hard_exit(self, original: Any) -> Any:
        def leave(status: int) -> Any:
            with suppress(Exception):
                if os.getpid() == self.pid:
                    if not self._told:
                        self._told = True
                        self._write(EndKind.EXIT, f"exit status {status} by os._exit{_caller()}{_after(sys.exc_info()[1])}")
                    self.ring.mark_ended(int(status))
            original(status)

        return leave

    def _write_faults(self) -> None:
        """Faults of native code write Python's stack into a file beside the ring, unless the script has asked for it elsewhere."""
        if faulthandler.is_enabled():
            return
        with suppress(OSError, ValueError):
            self._fault = self.ring.path.with_suffix(FAULT_SUFFIX).open("wb")
            faulthandler.enable(self._fault, all_threads=False)

    def _stop_faults(self) -> None:
        if self._fault is None:
            return
        if os.getpid() == self.pid:
            with suppress(OSError, ValueError):
                faulthandler.disable()
                self.ring.path.with_suffix(FAULT_SUFFIX).unlink()
        self._fault.close()
        self._fault = None


def describe_exception(error: BaseException | None, trace: TracebackType | None) -> str:
    """Type, message and the script's last frame: "ValueError: shard 17 is corrupt (train.py:31 in load)"."""
    if error is None:
        return "an exception"
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    message, inner = str(error), ""
    if "Original Traceback (most recent call last)" in message:  # of another process, such as a worker of a DataLoader
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        where = lines[0].partition(" in ")[2].rstrip(".")
        name, _, message = lines[-1].partition(": ")
        inner = _last_frame(_frames_in_text(lines)) + (f" in {where}" if where else "")
    message = " ".join(message.split())
    if len(message) > _LONGEST_MESSAGE:
        message = message[: _LONGEST_MESSAGE - 2] + " …"
    where = inner or _last_frame(_frames_of(trace))
    return f"{name}{': ' if message else ''}{message}{f' ({where})' if where else ''}"


def write_error_file(error: BaseException | None) -> None:
    """Writes the exception where torchrun looks for it, in its form, unless the script has done so (torch's `record`)."""
    path = os.environ.get(ERROR_FILE, "")
    if not path or error is None or os.path.exists(path):
        return
    stack = "".join(traceback.format_exception(error))
    told = {"message": f"{type(error).__name__}: {error}", "extraInfo": {"py_callstack": stack, "timestamp": str(int(time.time()))}}
    with suppress(OSError), open(path, "w", encoding="utf-8") as file:
        json.dump({"message": told}, file)


def _exit_code(status: Any) -> int:
    """The exit status of sys.exit(status)."""
    return 0 if status is None else status & 0xFF if isinstance(status, int) else 1


def exit_text(status: Any, ended: SystemExit | None = None) -> str:
    """What sys.exit(status) means, and where the script calls it: now, or where `ended` comes from."""
    said = "" if status is None or isinstance(status, int) else f", which said: {status}"
    where = _caller() if ended is None else _at(_frames_of(ended.__traceback__))
    handled = sys.exc_info()[1] if ended is None else ended.__context__
    return f"exit status {_exit_code(status)} by sys.exit{where}{said}{_after(handled)}"


def _after(error: BaseException | None) -> str:
    """The exception that the code which leaves is handling."""
    return "" if error is None else f", after {describe_exception(error, error.__traceback__)}"


def _caller() -> str:
    """Where the script asked for its exit."""
    frame = sys._getframe(1)
    places = []
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return _at(list(reversed(places)))


def _at(frames: list[tuple[str, int, str]]) -> str:
    where = _last_frame(frames)
    return f" at {where}" if where else ""


def _frames_of(trace: TracebackType | None) -> list[tuple[str, int, str]]:
    return [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_tb(trace)]


def _frames_in_text(lines: list[str]) -> list[tuple[str, int, str]]:
    """Frames of a printed traceback, the last one last."""
    found = []
    for line in lines:
        if line.startswith('File "') and '", line ' in line:
            path, _, rest = line.removeprefix('File "').partition('", line ')
            number, _, name = rest.partition(" in ")
            digits = number.rstrip(",").strip()
            if digits.isdigit():
                found.append((path, int(digits), name.strip() or "<module>"))
    return found


def _last_frame(frames: list[tuple[str, int, str]]) -> str:
    """The last frame of the script's own files; the very last one if there is none."""
    own = [frame for frame in frames if not os.path.realpath(frame[0]).startswith(_INSTALLED) and not frame[0].startswith("<")]
    if not frames:
        return ""
    path, line, name = (own or frames)[-1]
    return f"{os.path.basename(path)}:{line} in {name}"


def fault_frame(text: str) -> str:
    """The script's last frame in what faulthandler wrote; its frames come last first."""
    return _last_frame(_frames_in_text([line.strip() for line in text.splitlines()])[::-1])


def note_early_exception(error: BaseException, trace: TracebackType | None) -> None:
    """Notes the exception of a rank that failed before it imported torch."""
    if isinstance(error, SystemExit):
        note_early_exit(error.code, exit_text(error.code, error))
        return
    _note_early(EndKind.RAISED, describe_exception(error, trace), 1)
    write_error_file(error)


def note_early_exit(status: Any, text: str) -> None:
    """Notes the exit of a rank that left before it imported torch."""
    _note_early(EndKind.EXIT, text, _exit_code(status))


def _note_early(kind: EndKind, text: str, code: int) -> None:
    """Makes the ring of a rank that has none: it holds this one record."""
    settings = settings_of()
    rank, world = int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", "1"))
    ring = RingWriter(
        ring_path(settings.folder / settings.run, rank).absolute(), settings.run, rank, world,
        int(os.environ.get("LOCAL_RANK", "0")), host=os.environ.get(PREFIX + "HOST", ""), rows=64,
    )  # fmt: skip
    ring.write(int(Section.END), 0, ring.clock(), 0, 0, state=RowState.DONE, name=ring.text("name", end_line(kind, text)))
    ring.mark_ended(code)


def memory_kills(given: str | None = None) -> int:
    """Processes of this cgroup that the kernel has killed for lack of memory."""
    path = given or _own_memory_events_path()
    with contextlib.suppress(OSError, ValueError):
        for line in Path(path).read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name in ("oom_kill", "oom_kill_group"):
                return int(value)
    return 0


def _own_memory_events_path() -> str:
    with contextlib.suppress(OSError):
        return str(memory_events_path(Path("/proc/self/cgroup").read_text(encoding="utf-8")))
    return ""


def memory_events_path(groups: str, root: Path = Path("/sys/fs/cgroup")) -> Path:
    """The file that counts out-of-memory kills of the cgroup named in `groups` (the text of /proc/self/cgroup): `memory.events` in
    version 2, `memory.oom_control` in version 1. The root cgroup's file if a container hides the path.
    """
    own = {words[1]: words[2].lstrip("/") for line in groups.splitlines() if len(words := line.split(":", 2)) == 3}
    first, second = root / "memory", root
    places = [second / own.get("", "") / "memory.events", first / own.get("memory", "") / "memory.oom_control"]
    places += [second / "memory.events", first / "memory.oom_control"]
    return next((place for place in places if place.exists()), places[0])


_KERNEL_LOG = Path("/dev/kmsg")
_LONGEST_LOG = 1 << 22


def memory_facts(path: Path | None = None) -> dict[str, Any]:
    """Facts of a rank for the time when it is killed: which file counts the processes of its cgroup that the kernel killed because
    memory ran out, and its count now. Empty where the system has no such file.
    """
    with suppress(OSError):
        path = path or memory_events_path(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
        if path.exists():
            return {"memory_events": str(path), "oom_kills": memory_kills(str(path))}
    return {}


def _memory_text(pid: int, facts: Any, log: Path = _KERNEL_LOG) -> str:
    """Whether memory ran out, by what the kernel says of the process or of its cgroup; never of the machine: other jobs are
    killed there too. Empty if neither says so.
    """
    if re.search(rf"[Kk]illed process {pid} \(", _kernel_log(log)):
        return "the kernel killed it because memory ran out"
    before, path = facts.get("oom_kills", -1), str(facts.get("memory_events", ""))
    killed = memory_kills(path) - before if path and isinstance(before, int) and before >= 0 else 0
    count = "a process" if killed == 1 else f"{killed} processes"
    return f"the kernel has killed {count} of its cgroup since it began, because memory ran out" if killed > 0 else ""


def _kernel_log(path: Path) -> str:
    """The kernel's messages; empty for users who may not read them."""
    parts: list[bytes] = []
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while len(parts) < _LONGEST_LOG >> 8 and (part := os.read(file, 1 << 13)):
                parts.append(part)
        finally:
            os.close(file)
    return b"".join(parts).decode("utf-8", "replace")


def note_exit(pid: int, code: int) -> None:
    """Appends to the ring of process `pid`, if there is one, how it ended. `code`: its exit status, or minus a signal's number."""
    settings = settings_of()
    for path in ring_files(settings.folder / settings.run):
        if note_exit_in(path, pid, code):
            return


def note_exit_in(path: Path, pid: int, code: int) -> bool:
    """Appends to the ring at `path` how process `pid` ended; False if there is no ring of that process."""
    with suppress(FileError, ValueError, TypeError):  # a damaged ring, or one of another version
        reader = RingReader(path)
        try:
            meta, ended = reader.meta, reader.read(reader.head()).ended
        finally:
            reader.close()
        if meta.pid != pid:
            return False
        if code < 0:
            append_end(path, int(Section.END), end_line(EndKind.SIGNAL, _signal_text(path, -code, meta)))
        elif ended is None or ended != code:
            append_end(path, int(Section.END), end_line(EndKind.EXIT, f"exit status {code}"))
        return True
    return False


def _signal_text(path: Path, number: int, meta: RingMeta) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        told = _memory_text(meta.pid, meta.facts)
        return f"{name} ({told})" if told else name
    with suppress(OSError):
        where = fault_frame(path.with_suffix(FAULT_SUFFIX).read_text(encoding="utf-8", errors="replace"))
        return f"{name} ({where})" if where else name
    return name
