"""Ownership of a job by lease: which driver holds it in the database, and its renewal."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import dataclass, field

from windtunnel.fleet.driver.store import DriverStore, FencedError

SECONDS = 3.0
"""Length of a lease; a killed driver can be replaced after this time."""


@dataclass
class Lease:
    """The lease of this process."""

    store: DriverStore
    seconds: float = SECONDS
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}")
    fence: int = -1
    """Fencing number that its commands carry."""

    async def acquire(self) -> int:
        """Waits until the lease is free; returns the fencing number."""
        while (fence := self.store.acquire(self.owner, self.seconds, time.time())) is None:
            await asyncio.sleep(self.seconds / 10)
        self.fence = fence
        return fence

    async def keep_renewing(self) -> None:
        """Renews the lease until it is cancelled. FencedError if another driver holds it."""
        while True:
            await asyncio.sleep(self.seconds / 4)
            if not self.store.renew(self.fence, self.seconds, time.time()):
                raise FencedError(f"driver {self.fence} has lost its lease")

    def release(self) -> None:
        """Releases the lease, so that the next driver need not wait."""
        self.store.release(self.fence)
