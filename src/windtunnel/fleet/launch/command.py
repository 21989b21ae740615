"""Runs a command whose training processes start the monitor.

The folder of a run. A name that was used before gets a new folder: the earlier run's is renamed, so that no two runs mix.

Nodes of one job may share the folder, and start at different times. A file of each `fleet run` in `launches` says who has started
here: a folder is of an earlier run if all of them have ended, or if this machine's have, because it starts once in a job.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, Nothing, SpecError
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.starting import start_of

HOOK = Path(__file__).resolve().parent / "hook"
"""Folder whose `sitecustomize` starts the monitor."""

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_NOT_PASSED_ON = ("WINDTUNNEL_FLEET_PID", "WINDTUNNEL_FLEET_ALARM_WEBHOOK")
_FROM_TERMINAL = 0x80  # SI_KERNEL: the terminal has sent the signal to the command as well


def environment(
    folder: Path, run: str, policy: str = "full", collector: str = "", base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """`base` plus what the monitor needs: its folder on PYTHONPATH, and its settings."""
    paths = [str(HOOK), *(path for path in base.get("PYTHONPATH", "").split(os.pathsep) if path)]
    added = {"DIR": str(folder.absolute()), "RUN": run, "POLICY": policy, "COLLECTOR": collector}
    return {
        **{name: value for name, value in base.items() if name not in _NOT_PASSED_ON},
        "PYTHONPATH": os.pathsep.join(paths),
        **{f"WINDTUNNEL_FLEET_{name}": value for name, value in added.items() if value},
    }


def run_command(command: Sequence[str], variables: Mapping[str, str], on_child: Callable[[], object] = lambda: None) -> int:
    """Runs `command` with the environment `variables` and forwards signals to it; returns its exit code, 128 + signal as in shells.
    `on_child`: called whenever a child of this process, the command or another one, has ended.

    SpecError if there is no such command.
    """
    if not command:
        raise SpecError("COMMAND", Nothing(), "a command after --", "Type: windtunnel fleet run -- torchrun … script.py")
    watched = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = subprocess.Popen(
            list(command), env=dict(variables), preexec_fn=lambda: _set_mask(before)
        )  # the mask would be inherited
    except (OSError, subprocess.SubprocessError) as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise SpecError("COMMAND", command[0], "a program on PATH", f"It does not start: {error}.") from error
    try:
        while child.poll() is None:
            received = signal.sigwaitinfo(watched)
            if received.si_signo == signal.SIGCHLD:
                with suppress(Exception):  # whatever it does, the command goes on
                    on_child()
            if received.si_signo != signal.SIGCHLD and not (
                received.si_signo == signal.SIGINT and received.si_code == _FROM_TERMINAL
            ):
                child.send_signal(received.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 128 - child.returncode if child.returncode < 0 else int(child.returncode)


def _set_mask(mask: set[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


LAUNCHES = "launches"
LOCK = ".windtunnel.lock"
"""Beside the folders of runs; held while one is claimed."""
_SLURM = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")


class RunFolder:
    """A run's folder, claimed for this process; `moved` is the folder that the records of an earlier run of this name have now.

    Folders and files are for their owner only. FileError if the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.moved: Path | None = None
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _lock(folder.parent / LOCK):
                self.moved = _move_away(folder) if _is_of_earlier_run(folder) else None
                folder.mkdir(mode=0o700, exist_ok=True)
                (folder / LAUNCHES).mkdir(mode=0o700, exist_ok=True)
                self._mark = folder / LAUNCHES / f"{socket.gethostname()}-{os.getpid()}.json"
                self._write(ended=False)
        except OSError as error:
            raise FileError("--dir", str(folder), "a folder that can be written", f"{error.strerror}.") from error

    def end(self) -> None:
        """Notes that this process has ended."""
        with contextlib.suppress(OSError):
            self._write(ended=True)

    def _write(self, *, ended: bool) -> None:
        told = {"host": socket.gethostname(), "pid": os.getpid(), "started": start_of(os.getpid()), "job": _job(), "ended": ended}
        write_text_private(self._mark, json.dumps(told))


def write_text_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, whatever the umask; replaces it at once."""
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


def _is_of_earlier_run(folder: Path) -> bool:
    marks = list(_marks(folder))
    if not marks:
        return _has_dead_records(folder)
    here = [mark for mark in marks if mark.get("host") == socket.gethostname()]
    if any(_lives(mark) for mark in here):
        return False
    if here or all(mark.get("ended") for mark in marks):
        return True
    return bool(_job()) and all(mark.get("job") not in ("", _job()) for mark in marks)


def _marks(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((folder / LAUNCHES).glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            mark = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(mark, dict):
                yield mark


def _has_dead_records(folder: Path) -> bool:
    """Whether a folder without marks has records, and none of a process of this machine that lives."""
    rings = sorted(folder.glob("*.ring"))
    for path in rings:
        with contextlib.suppress(FileError):
            reader = RingReader(path)
            meta = reader.meta
            reader.close()
            if meta.host == socket.gethostname() and start_of(meta.pid):
                return False
    return bool(rings) or (folder / "collected" / "log").is_dir()


def _move_away(folder: Path) -> Path:
    """Renames the folder to the first free NAME.1, NAME.2, …"""
    number = 1
    while (to := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    folder.rename(to)
    return to


def _lives(mark: dict[str, Any]) -> bool:
    return not mark.get("ended") and isinstance(mark.get("pid"), int) and start_of(mark["pid"]) == mark.get("started") != ""


def _job() -> str:
    """What the scheduler calls this start of the job, the same on every node; empty without one."""
    return ".".join(os.environ.get(name, "") for name in _SLURM) if os.environ.get(_SLURM[0]) else ""


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Excludes other nodes and processes where the file system can."""
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
