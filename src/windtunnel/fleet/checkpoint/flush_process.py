"""The trainer's handle of its flush process: starts it, passes memory and orders, receives results."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from typing import Any

from windtunnel.fleet.checkpoint.memory import is_same_user, packet_socket, receive_message, send_message

COMMAND = [sys.executable, "-m", "windtunnel.fleet.checkpoint.flush"]
STARTED_WITHIN = 60.0
_CONNECTED_WITHIN = 2.0


class FlushProcess:
    """A flush process of `rank`. After it was killed, `send` raises OSError and `alive` is False."""

    def __init__(self, socket_name: str, rank: int, linger: float, umask: int, listen: str | None = None, token: str = "") -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for one in (mine, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        arguments = [str(theirs.fileno()), socket_name, str(rank), str(linger), str(umask), *([listen] if listen else [])]
        environment = {**os.environ, **({"WINDTUNNEL_CHECKPOINT_TOKEN": token} if listen else {})}
        with theirs:  # own session, so that a kill of the trainer's group spares it; no pipe of its log
            self.process = subprocess.Popen(
                [*COMMAND, *arguments],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self.control, self.socket_name, self.alive = mine, socket_name, True
        mine.settimeout(STARTED_WITHIN)
        started = receive_message(mine)
        if started is None:
            raise ConnectionError("the flush process ended as it started")
        mine.settimeout(None)
        self.port = int(started[0]["port"])

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Sends an order. OSError if the process is gone."""
        send_message(self.control, message, fds)

    def receive_all(self, wait: float) -> list[dict[str, Any]]:
        """Messages that have arrived, waiting up to `wait` seconds for the first one. Clears `alive` if the process is gone."""
        said: list[dict[str, Any]] = []
        while self.alive and select.select([self.control], [], [], 0 if said else wait)[0]:
            try:
                one = receive_message(self.control)
            except OSError:
                one = None
            if one is None:
                self.alive = False
            else:
                said.append(one[0])
        return said

    def end(self) -> None:
        """Lets the process finish its orders, then ends it."""
        try:
            self.send({"do": "end"})
        except OSError:
            self.alive = False
        self.control.close()
        self.process.wait()


def query_process(socket_name: str, message: dict[str, Any], within: float) -> tuple[dict[str, Any], list[int]] | None:
    """The answer of this user's flush process at `socket_name`, sent when its saves are done; None if there is none within `within`
    seconds, or if another user's process listens there: anyone may take a name that is free.
    """
    with packet_socket() as connection:
        connection.settimeout(min(within, _CONNECTED_WITHIN))  # a full queue of a stranger's would block for the whole time
        try:
            connection.connect("\0" + socket_name)
            if not is_same_user(connection):
                return None
            connection.settimeout(within)
            send_message(connection, message)
            return receive_message(connection)
        except (OSError, ValueError):
            return None
