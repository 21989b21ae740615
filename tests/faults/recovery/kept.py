"""A job under a driver, as a test handles it: starts, hurts and follows its processes, all by their ids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.faults.recovery import links
from windtunnel.base.errors import FileError
from windtunnel.fleet.agent.node_probes import process_state
from windtunnel.fleet.driver.detect import DetectionLimits
from windtunnel.fleet.driver.plan import JobPlan, JobState, RecoveryPolicy
from windtunnel.fleet.driver.serve import DATABASE, Driver, DriverStore
from windtunnel.fleet.launch.command import environment
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.wire.sockets import free_port
from windtunnel.records.incidents import Incident, read_incidents

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).parent / "script.py"
PRELOAD = ("torch", "torch.distributed", "torch._dynamo", "windtunnel.fleet.watch")
NODES, PER_NODE = 2, 2
PATIENCE = 120.0


class KeptJob:
    """Two nodes of two ranks in `folder`, whose driver is a process. Leaving the block ends all of it. `memory`: bytes that each
    node has (0: all of the machine's)."""

    def __init__(
        self, folder: Path, *words: str, spares: int = 1, limits: DetectionLimits | None = None,
        policy: RecoveryPolicy | None = None, adopt: float = 15.0, script: Path = SCRIPT, preload: tuple[str, ...] = PRELOAD,
        per_node: int = PER_NODE, store: str = "", networks: bool = False, memory: int = 0, rejoin: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.state_folder = folder, folder / "driver"
        folder.mkdir(parents=True)
        self.port = free_port()
        argv = (sys.executable, str(script), "--folder", str(folder), *words)
        variables = environment(folder.parent, folder.name, base={}) | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        if memory:
            variables["RECOVERY_MEMORY"] = str(memory)
        self.networks, self._memory = networks, memory
        host = links.DRIVER if networks else "127.0.0.1"
        if networks:
            variables["GLOO_SOCKET_IFNAME"] = links.DATA
        self.plan = JobPlan(
            argv, NODES, per_node, spares, folder.name, str(folder), f"{host}:{self.port}", variables=variables,
            preload=preload, rejoin=rejoin,
            limits=limits or DetectionLimits(silent=3.0), adopt_seconds=adopt,
            policy=policy or RecoveryPolicy(retries=10_000, same=10_000, fruitless=10_000),
        )  # fmt: skip
        self._store = store or f"sqlite:///{self.state_folder / DATABASE}"
        Driver(self.state_folder, _no_engine, print, store).save_plan(self.plan)
        self.driver: subprocess.Popen[bytes] | None = None
        self.detour: tuple[str, ...] = ()

    def __enter__(self) -> KeptJob:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.driver is not None and self.driver.poll() is None:
            self.driver.send_signal(signal.SIGINT)
            try:
                self.driver.wait(30)
            except subprocess.TimeoutExpired:
                self.driver.kill()
                self.driver.wait()

    def drive(self) -> None:
        """Starts a driver."""
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        with (self.folder / "driver.out").open("ab") as out:
            command = [sys.executable, "-m", "tests.faults.recovery.drive", str(self.state_folder)]
            if self.detour:
                command += ["--detour", *self.detour]
            if self._memory:
                command += ["--memory", str(self._memory)]
            if self.networks:
                command = [*links.ALONE, *command, "--networks"]
            self.driver = subprocess.Popen(command, env=variables, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def kill_driver(self) -> None:
        """SIGKILL."""
        assert self.driver is not None
        self.driver.kill()
        self.driver.wait()

    def state(self) -> JobState | None:
        """What the driver has kept."""
        store = DriverStore(self._store, self.plan.run)
        try:
            found: JobState | None = store.get("state", JobState)
            return found
        finally:
            store.close()

    def incidents(self) -> list[Incident]:
        return list(read_incidents(self.folder))

    def rank(self, rank: int) -> tuple[int, int]:
        """(pid, step) of a rank by its ring; (-1, -1) where it does not live."""
        try:
            reader = RingReader(ring_path(self.folder, rank))
        except FileError:
            return -1, -1
        pid, step = reader.meta.pid, reader.read(reader.head()).step
        reader.close()
        return (pid, step) if process_state(pid) not in ("", "Z") else (-1, -1)

    def agent(self, node: str) -> int:
        """Its process id."""
        return int(json.loads((self.state_folder / "agents" / f"agent-{node}.json").read_text(encoding="utf-8"))["pid"])

    def keeper_of(self, rank: int) -> int:
        """The parent of a rank; -1 where it does not live."""
        pid, _ = self.rank(rank)
        if pid <= 0:
            return -1
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])

    def training(self) -> bool:
        """Whether the driver is content and all ranks have done a step since they began."""
        state = self.state()
        return state is not None and state.phase == "RUN" and not state.open and self._stepped() >= 1

    def stepping(self) -> bool:
        """Whether the ranks have gone on, be it with steps that were lost."""
        state = self.state()
        return state is not None and state.phase in ("REPLAY", "RUN") and self._stepped() >= 1

    def done(self) -> int:
        """Steps of the job that every rank has done."""
        state = self.state()
        return (state.base if state is not None else 0) + max(0, self._stepped())

    def _stepped(self) -> int:
        """Steps that every rank has done since it began; -1 where one does not live."""
        return min(self.rank(rank)[1] for rank in range(NODES * self.plan.per_node))

    def over(self) -> bool:
        return self.driver is not None and self.driver.poll() is not None

    def until(self, what: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Whether it came true before the driver ended."""
        end = time.monotonic() + seconds
        while not what():
            if self.over():
                return what()
            if time.monotonic() > end:
                raise RuntimeError(f"nothing came of it in {seconds:g} s: {self.said()[-3:]}")
            time.sleep(0.02)
        return True

    def ended(self, seconds: float = PATIENCE) -> int:
        """The driver's exit status."""
        assert self.driver is not None
        return self.driver.wait(seconds)

    def said(self) -> list[str]:
        """What the drivers told the person."""
        return (self.folder / "driver.out").read_text(encoding="utf-8", errors="replace").splitlines()

    def weights(self) -> bytes | None:
        """The final weights as bytes; None where there are none."""
        import torch

        path = self.folder / "final.pt"
        if not path.exists():
            return None
        state = torch.load(path)
        return b"".join(name.encode() + value.numpy().tobytes() for name, value in sorted(state.items()))

    def attempts(self) -> int:
        """How often the ranks were started."""
        return len(list((self.folder / "logs").glob("attempt-*")))


def hurt(pid: int, number: int) -> bool:
    """Sends a signal; whether there was such a process. Never to pids below 1, which mean groups, or all processes."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _no_engine(command: object, folder: Path) -> object:
    raise AssertionError("the plan is only written here")
