"""Ports for servers that a test starts in another process."""

from __future__ import annotations

import random
import socket

RANGE = (20_000, 32_000)
"""Below the ports that Linux gives to connections by itself: between the look here and the server, nobody else gets one."""


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    while True:
        port = random.SystemRandom().randrange(*RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
