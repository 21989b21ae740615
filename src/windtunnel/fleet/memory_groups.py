"""What the kernel counts of a cgroup's memory: processes that it has killed because memory ran out."""

from __future__ import annotations

import contextlib
from pathlib import Path


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
