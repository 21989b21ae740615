"""How the children of this process ended, for ranks that could not say it: torchrun and other launchers in Python are watched too.

A launcher learns of the end of a child from `subprocess` or `multiprocessing`. If the child has a ring, a row is appended to it.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.fleet.memory_groups import memory_events_path, memory_kills
from windtunnel.fleet.ring import RingMeta, RingReader, append_end
from windtunnel.fleet.rings import ring_files
from windtunnel.fleet.watch.ends import FAULT_SUFFIX, fault_frame
from windtunnel.fleet.watch.settings import settings_of
from windtunnel.records.ends import EndKind, end_line
from windtunnel.records.sections import Section

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
