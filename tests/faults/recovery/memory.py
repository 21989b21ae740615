"""A node's memory as a cgroup with a limit: the kernel kills the process of it that takes too much. Version 1 or 2."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_LIMITS = {"memory.limit_in_bytes": ROOT / "memory", "memory.max": ROOT}
"""The file of the limit -> where the hierarchy is mounted that has it."""


def possible() -> bool:
    """Whether this user may make such a group."""
    name = f"windtunnel-{os.getpid()}-try"
    try:
        _made(name, 1 << 30)
    except OSError:
        return False
    remove(name)
    return True


def within(name: str, most: int) -> tuple[str, ...]:
    """Before a command that runs in the group `name` with at most `most` bytes. OSError where no such group can be made."""
    return ("sh", "-c", f'echo $$ > "{_made(name, most)}/cgroup.procs" && exec "$@"', "sh")


def remove(name: str, patience: float = 5.0) -> None:
    """Removes the group; its processes have been told to end."""
    until = time.monotonic() + patience
    while any(path.exists() for path in _places(name)) and time.monotonic() < until:
        for path in _places(name):
            with contextlib.suppress(OSError):
                path.rmdir()
        time.sleep(0.02)


def _made(name: str, most: int) -> Path:
    for path, limit in zip(_places(name), _LIMITS, strict=True):
        with contextlib.suppress(OSError):
            path.mkdir(exist_ok=True)
            (path / limit).write_text(str(most), encoding="ascii")
            return path
    remove(name)
    raise OSError(f"no cgroup {name} with a limit of memory can be made")


def _places(name: str) -> list[Path]:
    """The group in each hierarchy, below this process's own."""
    own = {words[1]: words[2].lstrip("/") for words in (line.split(":", 2) for line in _groups().splitlines())}
    return [root / own.get("memory" if root.name == "memory" else "", "") / name for root in _LIMITS.values()]


def _groups() -> str:
    return Path("/proc/self/cgroup").read_text(encoding="ascii")
