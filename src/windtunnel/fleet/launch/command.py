"""Runs a command whose training processes start the monitor."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from windtunnel.base.errors import Nothing, SpecError

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
