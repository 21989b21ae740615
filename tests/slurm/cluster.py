"""A real Slurm on loopback: a slurmctld, a slurmd for each node and a munged, all started here and ended by their ids.

Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge. Node names resolve to this machine; nothing listens
elsewhere.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
READY_SECONDS = 60.0


def why_not() -> str:
    """Why no Slurm can be started here; empty where it can."""
    missing = [one for one in PROGRAMS if shutil.which(one) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.geteuid() == 0 else "Slurm's daemons are started as root here"


class SlurmCluster:
    """`count` nodes `sn0`, `sn1`, …, each a slurmd of one CPU. Leaving the block ends every daemon. `variables`: for Slurm's
    commands."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.nodes = [f"sn{index}" for index in range(count)]
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> SlurmCluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._munge()
            self._configure()
            self._start("slurmctld", "slurmctld", "-D", "-f", self.variables["SLURM_CONF"])
            for node in self.nodes:
                self.up(node)
            self._wait(lambda: self.states() == dict.fromkeys(self.nodes, "idle"), "all nodes idle")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def up(self, node: str) -> None:
        self._start(node, "slurmd", "-D", "-N", node, "-f", self.variables["SLURM_CONF"])

    def down(self, node: str) -> None:
        """The node is lost: its slurmd and every process that it started are killed, and Slurm is told what it would see by itself
        after SlurmdTimeout."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()
        self._kill_steps(node)
        self.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def states(self) -> dict[str, str]:
        said = self.slurm("sinfo", "--noheader", "--Node", "--format=%N %t").split("\n")
        return {node: state.rstrip("*") for node, _, state in (line.strip().partition(" ") for line in said if line.strip())}

    def slurm(self, *command: str) -> str:
        ran = subprocess.run(command, env=os.environ | self.variables, capture_output=True, text=True, timeout=60, check=False)
        return ran.stdout

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        at = {name: str(self.folder / f"munge.{name}") for name in ("socket", "log", "pid", "seed")}
        self._start(
            "munged",
            "munged", "--foreground", "--force", f"--socket={at['socket']}", f"--key-file={key}", f"--log-file={at['log']}",
            f"--pid-file={at['pid']}", f"--seed-file={at['seed']}",
        )  # fmt: skip
        self._wait(Path(at["socket"]).exists, "munged's socket")

    def _configure(self) -> None:
        host, ports = socket.gethostname(), _ports(len(self.nodes) + 1)
        for name in ("state", "spool"):
            (self.folder / name).mkdir(exist_ok=True)
        lines = [
            "ClusterName=windtunnel", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={ports[0]}", "SlurmUser=root",
            "SlurmdUser=root", "AuthType=auth/munge", "CredType=cred/munge",
            f"AuthInfo=socket={self.folder / 'munge.socket'}",
            f"StateSaveLocation={self.folder / 'state'}", f"SlurmdSpoolDir={self.folder / 'spool'}/%n",
            f"SlurmctldPidFile={self.folder / 'slurmctld.pid'}", f"SlurmdPidFile={self.folder}/%n.pid",
            f"SlurmdLogFile={self.folder}/%n.log", f"SlurmctldLogFile={self.folder / 'slurmctld.log'}",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "JobAcctGatherType=jobacct_gather/none", "AccountingStorageType=accounting_storage/none", "MpiDefault=none",
            "ReturnToService=2", "SlurmdTimeout=300", "InactiveLimit=0", "KillWait=2", "SchedulerType=sched/builtin",
            *(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN"
              for node, port in zip(self.nodes, ports[1:], strict=True)),
            f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP",
        ]  # fmt: skip
        (self.folder / "slurm.conf").write_text("\n".join(lines) + "\n")

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                command, env=os.environ | self.variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def _wait(self, done: object, what: str) -> None:
        until = time.monotonic() + READY_SECONDS
        while not done():  # type: ignore[operator]
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > until:
                logs = "\n".join(file.read_text(errors="replace")[-1500:] for file in sorted(self.folder.glob("*.[lo][ou][gt]")))
                raise RuntimeError(f"no {what}; ended: {ended}\n{logs}")
            time.sleep(0.1)

    def _end(self) -> None:
        self.slurm("scancel", "--user=root")
        for node in self.nodes:
            self._kill_steps(node)
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _kill_steps(self, node: str) -> None:
        """The step daemons of a node, known by the log that they have open, and all below them."""
        log = self.folder / f"{node}.log"
        steps = [pid for pid in _processes() if _title(pid).startswith("slurmstepd:") and _has_open(pid, log)]
        for pid in [*steps, *(each for step in steps for each in _offspring(step))]:
            _kill(pid)


def _has_open(pid: int, file: Path) -> bool:
    try:
        return any(os.readlink(each) == str(file) for each in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _ports(count: int) -> list[int]:
    """Free ports of loopback."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _offspring(pid: int) -> list[int]:
    """All processes below one."""
    parents: dict[int, list[int]] = {}
    for one in _processes():
        try:
            parent = int(Path(f"/proc/{one}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(one)
    found, ahead = [], [pid]
    while ahead:
        below = parents.get(ahead.pop(), [])
        found += below
        ahead += below
    return found
