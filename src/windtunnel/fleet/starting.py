"""Ranks on their way: what the start-up hook notes of a rank's process before it has a ring, and whether a process works."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from windtunnel.base.dataclasses import dataclass

SUFFIX = ".start"
"""Of the file beside a rank's ring that the hook writes as the process begins: its id, its start, the attempt and the machine."""
PRINTED_SUFFIX = ".printed"
"""Of the file beside a rank's ring with lines that it has printed (`watch.printed`)."""
DUMPS = "dumps"
"""Subfolder of the run with what alarms have taken from its ranks (`dumps`)."""
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_CPU, _STARTED, _DISK = (11, 12), 19, 39  # words of /proc/PID/stat behind the name


@dataclass(frozen=True)
class Work:
    """What a process and its children have done since they began."""

    seconds: float = 0.0
    """On a core, ready to run without one, or waiting for a disk; of all threads."""
    read: int = 0
    """Bytes read from files, or by their memory maps from a disk."""

    def is_more(self, earlier: Work, elapsed: float) -> bool:
        """Whether it worked in the `elapsed` seconds since `earlier`: a process that only waits wakes up for less."""
        return self.seconds - earlier.seconds >= _LEAST_WORK * elapsed or self.read - earlier.read >= _LEAST_READ * elapsed


_LEAST_WORK = 0.1
"""Share of the time, of one core. A heartbeat and threads that poll take a hundredth."""
_LEAST_READ = 1 << 14
"""Bytes a second. An import from a slow file system reads more."""


def ask_path(run: Path, rank: int) -> Path:
    """The file by which a rank is asked for a dump."""
    return run / DUMPS / f"rank{rank}.ask"


def starting_ranks(folder: Path, known: Iterable[int], attempt: int = 0, host: str = "") -> dict[int, int]:
    """Ranks of this machine that have begun `attempt`, or a later one, and have no ring yet: rank → process id, 0 if it has ended.

    `known`: ranks with a ring in that attempt.
    """
    told, here = set(known), host or socket.gethostname()
    ranks = {}
    for path in folder.glob(f"rank-*{SUFFIX}"):
        with suppress(OSError, ValueError):
            pid, started, count, where = path.read_text(encoding="ascii").split()
            number = re.fullmatch(r"rank-(\d+)", path.stem)
            if number is not None and where == here and int(count) >= attempt and int(number[1]) not in told:
                ranks[int(number[1])] = int(pid) if start_of(int(pid)) == started else 0
    return ranks


def start_of(pid: int) -> str:
    """When a process of this machine started, in ticks since the machine did; empty if there is none, or only its exit status."""
    words = _words_of(pid)
    return "" if not words or words[0] in ("Z", "X") else words[_STARTED]


def work_of(pid: int) -> Work:
    """What a process has done, and the children that it has: a rank may wait for a compiler. Nothing where it is gone."""
    words = _words_of(pid)
    if not words:
        return Work()
    seconds = sum(int(words[word]) for word in (*_CPU, _DISK)) * _TICK + threads_waited_for_core(pid) * 1e-9
    read, below = 0, []
    with suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").split()
        read = int(lines[lines.index("rchar:") + 1]) + int(lines[lines.index("read_bytes:") + 1])
    with suppress(OSError, ValueError):
        below = [work_of(int(child)) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return Work(seconds + sum(part.seconds for part in below), read + sum(part.read for part in below))


def threads_waited_for_core(pid: int) -> int:
    """Ns for which the threads of a process were ready to run and had no core, added up; 0 where the kernel does not say."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0
    return sum(waited_for_core(pid, f"task/{thread}/") for thread in threads)


def waited_for_core(pid: int, thread: str = "") -> int:
    """Ns for which the main thread of a process was ready to run and had no core; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/{thread}schedstat", "rb", buffering=0) as file:
            return int(file.read(64).split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _words_of(pid: int) -> list[str]:
    """The words of /proc/PID/stat behind the process's name; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
