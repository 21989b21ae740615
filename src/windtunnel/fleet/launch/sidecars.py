"""Processes beside a training command on its node: optionally a collector, a shipper and a monitor. They end with the command; if
`fleet run` itself is killed, the kernel signals them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.fleet.collector_client import CollectorClient

COLLECTED = "collected"
"""Subfolder of the run for the collector."""
ALARMS = "alarms.jsonl"
LOG = "agents.log"
"""Output of the processes, in the folder of the run."""
START_SECONDS = 60.0
SHIP_SECONDS = 60.0
"""Longest time for the shipper to send the rest after the command has ended."""
OTHERS_SECONDS = 20.0
"""Longest time that a collector waits for the other nodes of the job."""
_NICE = 10
_PR_SET_PDEATHSIG = 1


@dataclass
class Sidecars:
    """Processes beside a command, as a context manager. FileError if the collector does not start."""

    folder: Path
    """Folder of the run, with the rings of this node."""
    listen: tuple[str, int] | None = None
    """Where to collect, (host, port), or None."""
    url: str = ""
    """Address of a collector elsewhere."""
    monitor: bool = True
    """Whether to check the job while it runs."""
    secrets: Path | None = None
    """For `listen`: folder of the collector's certificate, key and token."""
    _processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __enter__(self) -> Sidecars:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError("--dir", str(self.folder), "a folder that can be written", f"{error.strerror}.") from error
        try:
            if self.listen is not None:
                host, port = self.listen
                where: tuple[str, ...] = ("--dir", str(self.folder / COLLECTED), "--host", host, "--port", str(port))
                where += ("--secrets", str(self.secrets)) if self.secrets is not None else ()
                collector = self._start("collector", ["windtunnel", "fleet", "collect", *where], stdout=subprocess.PIPE)
                self.url = self._address(collector)
            if self.url:
                self._start("shipper", ["windtunnel.fleet.ship", str(self.folder), self.url, "inf"])
            if self.monitor:
                run = self.url if self.listen is not None else str(self.folder)
                arguments = [run, "--json", str(self.folder / ALARMS), "--stay", "--share", "0.02"]
                self._start("monitor", ["windtunnel", "fleet", "monitor", *arguments], stderr=None)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._end("monitor", 5.0)
            self._end("shipper", SHIP_SECONDS)
            if "collector" in self._processes:
                self._wait_for_other_nodes()
                self._end("collector", 30.0)
        finally:
            self._kill()

    def _start(
        self, name: str, module: Sequence[str], stdout: Any = None, stderr: Any = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        variables = {key: value for key, value in os.environ.items() if key not in ("WINDTUNNEL_FLEET_DIR", "WINDTUNNEL_FLEET_PID")}
        with (self.folder / LOG).open("a", encoding="utf-8") as log:
            self._processes[name] = child = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *module], env=variables, stdin=subprocess.DEVNULL, stdout=stdout or log,
                stderr=log if stderr == subprocess.DEVNULL else stderr, text=True, start_new_session=True,
                preexec_fn=_end_with_parent(os.getpid()),
            )  # fmt: skip
        return child

    def _address(self, collector: subprocess.Popen[str]) -> str:
        """The address that the collector prints when it listens."""
        assert collector.stdout is not None
        ready, _, _ = select.select([collector.stdout], [], [], START_SECONDS)
        line = collector.stdout.readline() if ready else ""
        if " at " not in line:
            log = (self.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise FileError("--collect", (log or ["it says nothing"])[-1], "a collector that starts", f"See {self.folder / LOG}.")
        return line.rpartition(" at ")[2].strip()

    def _wait_for_other_nodes(self) -> None:
        """Waits for a limited time until the ranks of other nodes have ended too."""
        until = time.monotonic() + OTHERS_SECONDS
        with contextlib.suppress(FileError):
            while time.monotonic() < until:
                run = CollectorClient(self.url, os.environ.get("WINDTUNNEL_FLEET_TOKEN") or None)
                beats = run.heartbeats()
                run.close()
                if all(beat.ended is not None or beat.process == "gone" for beat in beats):
                    return
                time.sleep(0.5)

    def _end(self, name: str, patience: float) -> None:
        child = self._processes.get(name)
        if child is None:
            return
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)

    def _kill(self) -> None:
        for child in self._processes.values():
            if child.poll() is None:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()


def _end_with_parent(parent: int) -> Callable[[], None]:
    """For a child before it starts: lowers its priority below the ranks', and requests SIGTERM when the parent ends."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        os.nice(_NICE)
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)

    return prepare
