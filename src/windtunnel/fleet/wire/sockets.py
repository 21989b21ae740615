"""Reading from a stream socket, which returns what has arrived and not what was asked for."""

from __future__ import annotations

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
