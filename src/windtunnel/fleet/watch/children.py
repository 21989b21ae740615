"""How the children of this process ended, for ranks that could not say it: torchrun and other launchers in Python are watched too.

A launcher learns of the end of a child from `subprocess` or `multiprocessing`. If the child has a ring, a row is appended to it.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.fleet.ring import RingReader, append_end
from windtunnel.fleet.rings import ring_files
from windtunnel.fleet.watch.ends import FAULT_SUFFIX, fault_frame
from windtunnel.fleet.watch.settings import settings_of
from windtunnel.records.ends import EndKind, end_line
from windtunnel.records.sections import Section

_VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int:
    """Processes of this machine that the kernel has killed because memory ran out, since it started; -1 if it does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in _VMSTAT.read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return -1


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
            append_end(path, int(Section.END), end_line(EndKind.SIGNAL, _signal_text(path, -code, meta.facts)))
        elif ended is None or ended != code:
            append_end(path, int(Section.END), end_line(EndKind.EXIT, f"exit status {code}"))
        return True
    return False


def _signal_text(path: Path, number: int, facts: Any) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        before, now = facts.get("oom_kills", -1), oom_kills()
        if isinstance(before, int) and 0 <= before < now:
            return f"{name} (the kernel has killed {now - before} of this machine's processes since, because memory ran out)"
        return name
    with suppress(OSError):
        where = fault_frame(path.with_suffix(FAULT_SUFFIX).read_text(encoding="utf-8", errors="replace"))
        return f"{name} ({where})" if where else name
    return name
