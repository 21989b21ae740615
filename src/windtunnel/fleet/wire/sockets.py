"""Reading from a stream socket, which returns what has arrived and not what was asked for."""

from __future__ import annotations

import socket


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """The next `size` bytes. EOFError if the peer closes the connection before they have come; OSError."""
    words = b""
    while len(words) < size:
        part = connection.recv(size - len(words))
        if not part:
            raise EOFError
        words += part
    return words
