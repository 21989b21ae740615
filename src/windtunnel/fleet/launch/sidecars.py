"""Processes beside a training command on its node: optionally a collector, a shipper and a monitor. They end with the command; if
`fleet run` itself is killed, the kernel signals them. One that does not start is told, and the command runs without it.

How long the processes beside a job may take.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.fleet.fence import tell
from windtunnel.fleet.launch.webhook import VARIABLE as WEBHOOK
from windtunnel.fleet.recorded import CollectorClient
from windtunnel.fleet.rings import has_all_ranks
from windtunnel.fleet.wire.secrets import LOOPBACK, folder_token
from windtunnel.fleet.wire.timers import apply_timers


@dataclass(frozen=True)
class BesideLimits:
    """Seconds. What a job is watched by may not hold up its end: whatever has not ended by then is killed."""

    start_seconds: float = 60.0
    """For the collector to start, and for another node to make the secrets."""
    monitor_seconds: float = 2.0
    """For the monitor to end, after the command."""
    ship_seconds: float = 10.0
    """For the shipper to send the rest, after the command: while the monitor ends."""
    others_seconds: float = 20.0
    """For ranks on other nodes to end after that, as long as they are heard of."""
    ask_seconds: float = 2.0
    """For one answer of the collector while other nodes are waited for."""
    collector_seconds: float = 8.0
    """For the collector to end after that, while the records are read."""
    summary_seconds: float = 10.0
    """For reading and judging the records: of one node, as soon as the monitor has ended; of several, while the collector ends."""


COLLECTED = "collected"
"""Subfolder of the run for the collector."""
ALARMS = "alarms.jsonl"
STEPS = "steps.npz"
"""What the monitor keeps of the run's steps, beside its alarms."""
LOST = {
    "collector": "what it has acknowledged is kept, and what ranks here record stays in their rings",
    "shipper": "no later record is sent; what ranks here record stays in their rings",
    "monitor": "no alarm is raised any more; records are written as before",
}
"""What a job loses whose process beside it has ended."""
LOG = "agents.log"
"""Output of the processes, in the folder of the run."""
TOKEN_VARIABLE = "WINDTUNNEL_FLEET_TOKEN"
_NICE = 10
_PR_SET_PDEATHSIG = 1


@dataclass
class Sidecars:
    """Processes beside a command, as a context manager. What does not start is told once on standard error."""

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
    webhook: str = ""
    """Where the monitor sends alarms. It is passed on in the environment: command lines are for all to read."""
    of_monitor: Sequence[str] = ()
    """Further options of the monitor."""
    token: str = ""
    """What a collector beside the command asks for: a token of the environment, else the one that it has made in its folder."""
    limits: BesideLimits = field(default_factory=lambda: apply_timers(BesideLimits(), "beside"))
    on_complete: Callable[[], object] = lambda: None
    """Called once after the command, as soon as all that will come of the run's records is on this machine's disk."""
    given_up: list[str] = field(default_factory=list)
    """What was not waited for at the end, as sentences for the user."""
    _processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def tell_what_ended(self) -> None:
        """A line, once, for each process that has ended before the command: killed, or by a fault. One that was asked to end, as a
        scheduler asks all processes of a job, is not told."""
        for name, child in self._processes.items():
            status = child.poll()
            if status in (None, 0, -signal.SIGTERM, -signal.SIGINT) or name in self._told:
                continue
            self._told.add(name)
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}, see {self.folder / LOG}"
            tell(f"the {name} beside the job has ended ({how}): {LOST[name]}")

    @property
    def takes_other_nodes(self) -> bool:
        """Whether a collector here listens where other machines can send to it."""
        return self.listen is not None and self.listen[0] not in LOOPBACK

    def __enter__(self) -> Sidecars:
        try:
            with self._or_without("collector"):
                if self.listen is not None:
                    self._start_collector(*self.listen)
            with self._or_without("shipper"):
                if self.url:
                    self._start("shipper", ["windtunnel.fleet.ship", str(self.folder), self.url, "inf"])
            with self._or_without("monitor"):
                if self.monitor:
                    run = self.url if self.listen is not None and self.url else str(self.folder)
                    arguments = [run, "--json", str(self.folder / ALARMS), "--stay", "--share", "0.02", *self.of_monitor]
                    self._start("monitor", ["windtunnel", "fleet", "monitor", *arguments], stderr=None)
        except BaseException:
            self._kill()
            raise
        return self

    def _start_collector(self, host: str, port: int) -> None:
        where: tuple[str, ...] = ("--dir", str(self.folder / COLLECTED), "--host", host, "--port", str(port))
        where += ("--secrets", str(self.secrets)) if self.secrets is not None else ()
        collector = self._start("collector", ["windtunnel", "fleet", "collect", *where], stdout=subprocess.PIPE)
        url = self._address(collector)
        if self.secrets is None:
            self.token = os.environ.get(TOKEN_VARIABLE) or folder_token(self.folder / COLLECTED)
        self.url = url

    @contextlib.contextmanager
    def _or_without(self, name: str) -> Iterator[None]:
        """What cannot be started beside the command is told, and not there."""
        try:
            yield
        except Exception as error:
            tell(f"the job runs without a {name}: {' '.join(str(error).split())}")
            child = self._processes.pop(name, None)
            if child is not None:
                child.kill()
                child.wait()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._end(kind is None)
        except Exception as fault:  # the command's exit status is what counts
            self.given_up.append(f"not all of what ran beside the job was waited for: {fault}")
        finally:
            self._kill()

    def _end(self, well: bool) -> None:
        """Lets the processes end, in the order in which each has what it needs, and for a limited time."""
        ended = time.monotonic()
        self.tell_what_ended()
        for name in ("monitor", "shipper"):
            self._ask_to_end(name)
        self._has_ended("monitor", ended + self.limits.monitor_seconds)
        alone = not self.takes_other_nodes or has_all_ranks(self.folder)
        if alone and well:
            self.on_complete()
        sent = self._has_ended("shipper", ended + self.limits.ship_seconds)
        if not sent:
            self.given_up.append(
                f"the collector did not take the last records in {self.limits.ship_seconds:g} s; the rings in {self.folder} "
                "have them"
            )
        if "collector" in self._processes:
            if sent and not alone:
                self._wait_for_other_nodes()
            self._ask_to_end("collector")
            until = time.monotonic() + self.limits.collector_seconds
            if not alone and well:
                self.on_complete()
            if not self._has_ended("collector", until):
                self.given_up.append("the collector did not end by itself and was killed; what it has acknowledged is kept")

    def _start(
        self, name: str, module: Sequence[str], stdout: Any = None, stderr: Any = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        variables = {key: value for key, value in os.environ.items() if key not in ("WINDTUNNEL_FLEET_DIR", "WINDTUNNEL_FLEET_PID")}
        variables["WINDTUNNEL_FLEET_RUN"] = self.folder.name
        variables |= {WEBHOOK: self.webhook} if self.webhook else {}
        variables |= {TOKEN_VARIABLE: self.token} if self.token else {}
        with self._log() as log:
            self._processes[name] = child = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *module], env=variables, stdin=subprocess.DEVNULL, stdout=stdout or log,
                stderr=log if stderr == subprocess.DEVNULL else stderr, text=True, start_new_session=True,
                preexec_fn=_end_with_parent(os.getpid()),
            )  # fmt: skip
        return child

    def _log(self) -> IO[str]:
        """The file that takes the output of the processes; nowhere, on a full disk."""
        try:
            return open(os.open(self.folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8")
        except OSError:
            return open(os.devnull, "a", encoding="utf-8")

    def _address(self, collector: subprocess.Popen[str]) -> str:
        """The address that the collector prints when it listens."""
        assert collector.stdout is not None
        ready, _, _ = select.select([collector.stdout], [], [], self.limits.start_seconds)
        line = collector.stdout.readline() if ready else ""
        if " at " not in line:
            log = (self.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise FileError("--collect", (log or ["it says nothing"])[-1], "a collector that starts", f"See {self.folder / LOG}.")
        return line.rpartition(" at ")[2].strip()

    def _wait_for_other_nodes(self) -> None:
        """Waits for a limited time until the ranks of other nodes have ended too, or the collector does not answer."""
        until, here = time.monotonic() + self.limits.others_seconds, socket.gethostname()
        with contextlib.suppress(FileError):
            while time.monotonic() < until:
                run = CollectorClient(self.url, self.token or os.environ.get(TOKEN_VARIABLE), self.limits.ask_seconds)
                beats = run.heartbeats()
                run.close()
                if all(beat.ended is not None or beat.process == "gone" or beat.host == here for beat in beats):
                    return
                time.sleep(0.5)

    def _ask_to_end(self, name: str) -> None:
        if name in self._processes:
            self._processes[name].terminate()

    def _has_ended(self, name: str, until: float) -> bool:
        """Waits for a process until then (`time.monotonic()`); whether it has ended, or there is none."""
        child = self._processes.get(name)
        if child is None:
            return True
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _kill(self) -> None:
        for child in self._processes.values():
            if child.poll() is None:
                child.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(1.0)  # one that waits for a dead disk cannot be ended
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
