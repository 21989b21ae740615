"""Engine that starts agents as processes of this machine, each in its own session."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError
from windtunnel.fleet.engines.engine import AgentCommand
from windtunnel.fleet.fence import describe, open_log, tell

PATIENCE = 5.0
"""Seconds from SIGTERM to SIGKILL."""


@dataclass(frozen=True)
class Process:
    """A process by its id and start time in clock ticks since boot, because an id can be reused."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The running process with this id; None if it is gone or a zombie."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in ("Z", "X") else cls(pid, int(fields[19]))

    def runs(self) -> bool:
        return Process.of(self.pid) == self


@dataclass
class LocalEngine:
    """Nodes `node0`, `node1`, … on this machine."""

    command: AgentCommand
    folder: Path
    """Holds the agents' process ids and logs."""
    _children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def acquire(self, count: int) -> tuple[str, ...]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return tuple(f"node{index}" for index in range(count))

    def start(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            self.stop(node)
            with open_log(self._log(node)) as log:
                child = subprocess.Popen(
                    self.command.of(node), env=self.command.variables(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
            self._children[child.pid] = child
            process = Process.of(child.pid)
            if process is not None:
                self._write_process(node, process)

    def stop(self, node: str) -> None:
        process = self._read_process(node)
        if process is None:
            return
        end_group(process.pid, lambda: self._runs(process), PATIENCE)
        self._reap()
        self._file(node).unlink(missing_ok=True)

    def is_running(self, node: str) -> bool:
        process = self._read_process(node)
        return process is not None and self._runs(process)

    def place(self, node: str) -> str | None:
        return socket.gethostname()

    def close(self) -> None:
        for file in sorted(self.folder.glob("agent-*.json")):
            self.stop(file.stem.removeprefix("agent-"))
        for child in self._children.values():
            child.wait(PATIENCE)
        self._children.clear()

    def _runs(self, process: Process) -> bool:
        self._reap()
        return process.runs()

    def _reap(self) -> None:
        for pid in [pid for pid, child in self._children.items() if child.poll() is not None]:
            del self._children[pid]

    def _log(self, node: str) -> Path:
        return self.folder / f"agent-{_checked_name(node)}.log"

    def _file(self, node: str) -> Path:
        return self.folder / f"agent-{_checked_name(node)}.json"

    def _write_process(self, node: str, process: Process) -> None:
        new = self._file(node).with_suffix(".new")
        try:
            new.write_text(json.dumps({"pid": process.pid, "started": process.started}), encoding="utf-8")
            new.replace(self._file(node))
        except OSError as error:
            tell(f"a later driver will not know the agent of {node}: {describe(error)}")

    def _read_process(self, node: str) -> Process | None:
        try:
            record = json.loads(self._file(node).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return Process(int(record["pid"]), int(record["started"]))


def end_group(group: int, runs: Callable[[], bool], patience: float) -> None:
    """Sends SIGTERM to a process group while its leader `runs`, SIGKILL after `patience` seconds, which also ends what the leader
    left behind.
    """
    if not runs():
        return
    _signal(group, signal.SIGTERM)
    until = time.monotonic() + patience
    while runs() and time.monotonic() < until:
        time.sleep(0.01)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _checked_name(node: str) -> str:
    """The name if it is usable in a file name; SpecError otherwise."""
    if not node or not all(one.isalnum() or one in "-_." for one in node) or node.startswith("."):
        raise SpecError("node", node, "a name of letters, digits, dashes, dots and underscores")
    return node
