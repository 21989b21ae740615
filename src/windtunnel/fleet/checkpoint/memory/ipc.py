"""Messages between processes of one node: JSON in packets of a Unix socket, memory as file descriptors."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

from windtunnel.fleet.checkpoint.manifest import hash_of

LARGEST = 1 << 20
"""Largest message in bytes."""
FDS = 2


def send_message(connection: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Sends one message. OSError if nobody listens."""
    socket.send_fds(connection, [json.dumps(message).encode()], list(fds))


def receive_message(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with its file descriptors; None at the end of the connection. ValueError if it is none of ours."""
    raw, fds, _, _ = socket.recv_fds(connection, LARGEST, FDS)
    if not raw:
        return None
    message = json.loads(raw)
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message, fds


def packet_socket() -> socket.socket:
    """An unconnected packet socket."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    return made


def socket_prefix(folder: str, node: str) -> str:
    """Prefix of the socket names of processes that hold memory for `folder` on `node`."""
    key = "\0".join((os.path.realpath(folder), node, str(os.getuid())))
    return f"windtunnel-checkpoint-{hash_of(key.encode())[:16]}-"


def socket_names(prefix: str) -> list[str]:
    """Abstract socket names on this machine that begin with `prefix`."""
    names = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if f" @{prefix}" in line}
    return sorted(name[1:] for name in names)


def is_same_user(connection: socket.socket) -> bool:
    """Whether the peer process belongs to this user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", raw)[1] == os.getuid())
