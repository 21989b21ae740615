"""State of a process from /proc."""

from __future__ import annotations

from pathlib import Path

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "sleeping",
    "I": "sleeping",
    "T": "stopped",
    "t": "stopped",
    "Z": "zombie",
    "X": "gone",
}


class ProcessState:
    """State of a process by its id. A later process with the same id is another one, and this one is gone."""

    def __init__(self, pid: int) -> None:
        self._path = Path("/proc") / str(pid) / "stat"
        self._started = ""

    def state(self) -> str:
        """running, sleeping, stopped, zombie or gone."""
        try:
            words = self._path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            letter, started = words[0], words[19]
        except (OSError, IndexError):
            return "gone"
        self._started = self._started or started
        return _STATES.get(letter, "running") if started == self._started else "gone"
