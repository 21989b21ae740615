"""What a kept job's processes write: ranks' output on the driver's terminal, line by line, as `--tee` asks, and the last words of
agents that have ended.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from windtunnel.base.text import clean
from windtunnel.fleet.engines.engine import Engine

READ_AT_ONCE = 1 << 18
LONGEST = 4096
"""Longest line that is printed, in characters; of a longer one the first."""
_ENDS = re.compile(rb"\r\n|\n|\r")


@dataclass
class LogTee:
    """Follows the logs of all ranks in the shared folder of a run. Escape sequences are removed: what a rank prints cannot drive
    the terminal."""

    folder: Path
    """Folder of the run."""
    emit: Callable[[str], object]
    _at: dict[Path, int] = field(default_factory=dict)
    _rest: dict[Path, bytes] = field(default_factory=dict)

    def skip(self, attempt: int) -> None:
        """Leaves out what the ranks of `attempt` have printed so far: an earlier driver has shown it."""
        for path, _ in self._logs(attempt):
            with contextlib.suppress(OSError):
                self._at[path] = path.stat().st_size

    def look(self, attempt: int, ended: bool = False) -> None:
        """Prints what was written since the last call; with `ended` also a last line without an end."""
        for path, rank in self._logs(attempt):
            with contextlib.suppress(OSError), path.open("rb") as file:
                while os.fstat(file.fileno()).st_size > self._at.get(path, 0):
                    file.seek(self._at.get(path, 0))
                    raw = file.read(READ_AT_ONCE)
                    self._at[path] = self._at.get(path, 0) + len(raw)
                    *lines, self._rest[path] = _ENDS.split(self._rest.get(path, b"") + raw)
                    self._print(rank, lines)
            if ended and self._rest.get(path):
                self._print(rank, [self._rest.pop(path)])

    def _print(self, rank: int, lines: list[bytes]) -> None:
        for line in lines:
            if text := clean(line[: 4 * LONGEST].decode("utf-8", "replace"))[:LONGEST]:
                self.emit(f"[rank {rank}] {text}")

    def _logs(self, attempt: int) -> list[tuple[Path, int]]:
        found = sorted((self.folder / "logs" / f"attempt-{attempt:04d}").glob("rank-*.log"))
        return [(path, int(path.stem.partition("-")[2])) for path in found if path.stem.partition("-")[2].isdigit()]


def ended_agents(engine: Engine, logs: Path, nodes: Sequence[str]) -> dict[str, str]:
    """Agents of `nodes` that have ended, with the last line that each wrote into its log in `logs`; none whose log is elsewhere."""
    found = {}
    for node in nodes:
        log = logs / f"agent-{node}.log"
        if log.exists() and not engine.is_running(node):
            with contextlib.suppress(OSError):
                lines = log.read_bytes()[-READ_AT_ONCE:].decode("utf-8", "replace").splitlines()
                found[node] = next((text for line in reversed(lines) if (text := clean(line).strip())), "it wrote nothing")[
                    :LONGEST
                ]
    return found
