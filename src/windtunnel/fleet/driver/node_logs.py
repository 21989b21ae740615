"""What a kept job's processes write: ranks' output on the driver's terminal, line by line, as `--tee` asks, and the last words of
agents that have ended.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.text import clean
from windtunnel.fleet.engines.engine import Engine

READ_AT_ONCE = 1 << 18
LONGEST = 4096
"""Longest line that is printed, in characters; of a longer one the first."""
_ENDS = re.compile(rb"\r\n|\n|\r")


@dataclass
class FollowedLogs:
    """Files that others append to, line by line. One that has become shorter is read from its beginning."""

    _at: dict[Path, int] = field(default_factory=dict)
    _rest: dict[Path, bytes] = field(default_factory=dict)

    def skip(self, path: Path) -> None:
        """Leaves out what the file has so far."""
        with contextlib.suppress(OSError):
            self._at[path] = path.stat().st_size

    def lines(self, path: Path) -> Iterator[bytes]:
        """Whole lines that were written since the last call; none of a file that cannot be read."""
        with contextlib.suppress(OSError), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._at.get(path, 0):
                self._at[path] = 0
                self._rest.pop(path, None)
            while size > self._at.get(path, 0):
                file.seek(self._at.get(path, 0))
                raw = file.read(READ_AT_ONCE)
                if not raw:
                    return
                self._at[path] = self._at.get(path, 0) + len(raw)
                *lines, self._rest[path] = _ENDS.split(self._rest.get(path, b"") + raw)
                yield from lines

    def rest(self, path: Path) -> bytes:
        """A last line without an end."""
        return self._rest.pop(path, b"")


@dataclass
class LogTee:
    """Follows the logs of all ranks in the shared folder of a run. Escape sequences are removed: what a rank prints cannot drive
    the terminal."""

    folder: Path
    """Folder of the run."""
    emit: Callable[[str], object]
    _logs: FollowedLogs = field(default_factory=FollowedLogs)

    def skip(self, attempt: int) -> None:
        """Leaves out what the ranks of `attempt` have printed so far: an earlier driver has shown it."""
        for path, _ in self._of_attempt(attempt):
            self._logs.skip(path)

    def look(self, attempt: int, ended: bool = False) -> None:
        """Prints what was written since the last call; with `ended` also a last line without an end."""
        for path, rank in self._of_attempt(attempt):
            self._print(rank, self._logs.lines(path))
            if ended and (rest := self._logs.rest(path)):
                self._print(rank, [rest])

    def _print(self, rank: int, lines: Iterable[bytes]) -> None:
        for line in lines:
            if text := clean(line[: 4 * LONGEST].decode("utf-8", "replace"))[:LONGEST]:
                self.emit(f"[rank {rank}] {text}")

    def _of_attempt(self, attempt: int) -> list[tuple[Path, int]]:
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
