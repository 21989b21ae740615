"""Free ports for servers that another process starts."""

from __future__ import annotations

import random
import socket

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
