"""Keepers that are forked from one process which has imported torch once, for the many jobs of a test run.

`python -m tests.faults.recovery.forked_keepers OPTIONS` is an agent as any other, but that it asks that process for its keeper.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

from windtunnel.fleet.agent import keeper, keeper_client
from windtunnel.fleet.agent.__main__ import main as run_agent

DOOR = "FORKED_KEEPERS"
"""Environment variable with the path of that process's socket."""
AGENT = (sys.executable, "-m", "tests.faults.recovery.forked_keepers")
ROOT = Path(__file__).parents[3]


@contextmanager
def forked_keepers(folder: Path, preload: Sequence[str]) -> Iterator[None]:
    """Jobs that are started within have their keepers from a process that has imported the modules `preload`."""
    door = folder / "keepers"
    program = f"from tests.faults.recovery.forked_keepers import serve; serve({str(door)!r}, {list(preload)!r})"
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, keeper.room_argument()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    os.environ[DOOR] = str(door)
    try:
        yield
    finally:
        del os.environ[DOOR]
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def serve(door: str, preload: Sequence[str]) -> None:
    """Forks a keeper for each message until stdin ends."""
    for name in preload:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # agents ask nobody how their keeper ended
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(door)
        listener.listen(16)
        print("ready", flush=True)
        while sys.stdin not in (ready := select.select([sys.stdin, listener], [], [])[0]):
            assert ready
            asking, _ = listener.accept()
            with asking:
                raw, (log,), _, _ = socket.recv_fds(asking, 1 << 20, 1)
            if os.fork() == 0:
                _become_keeper(log, **json.loads(raw))
            os.close(log)


def _become_keeper(log: int, path: str, variables: dict[str, str], folder: str) -> NoReturn:
    """What `python -m windtunnel.fleet.agent.keeper` does, in a session of its own."""
    try:
        os.setsid()
        keeper.take_place(log, variables, folder)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        keeper.set_title([sys.executable, "-m", "windtunnel.fleet.agent.keeper", path], final=False)
        keeper.Keeper(path).serve()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _ask_for_keeper(command: Sequence[str], *, env: dict[str, str], stdout: IO[bytes], **_: Any) -> Any:
    """In the place of `subprocess.Popen` of a keeper's command."""
    asked = {"path": command[3], "variables": env, "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.connect(os.environ[DOOR])
        socket.send_fds(door, [json.dumps(asked).encode()], [stdout.fileno()])
    return SimpleNamespace(poll=lambda: None)


if __name__ == "__main__":
    keeper_client.subprocess = SimpleNamespace(Popen=_ask_for_keeper, DEVNULL=subprocess.DEVNULL)  # type: ignore[attr-defined]
    sys.exit(run_agent())
