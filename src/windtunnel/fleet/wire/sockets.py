"""Free ports for servers, and reading from a stream socket, which returns what has arrived and not what was asked for."""

from __future__ import annotations

import random
import socket

_AT_ONCE = 4 << 20
"""Most bytes of one call, so that a time limit of the socket is one of silence."""


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """The next `size` bytes. ConnectionError if the peer closes the connection before they have come; OSError."""
    words = bytearray(size)
    fill_exactly(connection, memoryview(words))
    return bytes(words)


def fill_exactly(connection: socket.socket, view: memoryview) -> None:
    """Fills `view` with the next bytes. ConnectionError if the peer closes the connection before they have come; OSError."""
    done = 0
    while done < len(view):
        count = connection.recv_into(view[done : done + _AT_ONCE])
        if not count:
            raise ConnectionError("the peer has closed the connection")
        done += count


RANGE = (20_000, 32_000)
"""Below Linux' ephemeral ports, so that no connection takes the port between this check and the start of the server."""
_TRIES = 50


def free_port() -> int:
    """A port that is free on all addresses of this machine; from `RANGE` unless that is full. OSError if there is none."""
    dice = random.SystemRandom()
    for port in [*(dice.randrange(*RANGE) for _ in range(_TRIES)), 0]:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free")
