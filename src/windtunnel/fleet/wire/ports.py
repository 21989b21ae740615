"""Ports for servers that another process starts."""

from __future__ import annotations

import random
import socket

RANGE = (20_000, 32_000)
"""Below the ports that Linux gives to connections by itself: between the look here and the server, none of them gets one."""
_TRIES = 50


def free_port() -> int:
    """A port on which nobody listens, at any address of this machine; of `RANGE` unless that is full. OSError if there is none."""
    dice = random.SystemRandom()
    for port in [*(dice.randrange(*RANGE) for _ in range(_TRIES)), 0]:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free")
