"""One driver owns a job: who holds the lease in the database, and renews it in time."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import dataclass, field

from windtunnel.fleet.driver.store import DriverStore, FencedError

SECONDS = 3.0
"""A driver that was killed is followed after so long."""


@dataclass
class Lease:
    """The lease of this process on a store. `fence` is the number that its commands carry."""

    store: DriverStore
    seconds: float = SECONDS
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}")
    fence: int = -1

    async def acquire(self) -> int:
        """Waits until the lease is free; the fencing number."""
        while (fence := self.store.acquire(self.owner, self.seconds, time.time())) is None:
            await asyncio.sleep(self.seconds / 10)
        self.fence = fence
        return fence

    async def keep_renewing(self) -> None:
        """Renews until it is cancelled. Raises FencedError where another driver has it."""
        while True:
            await asyncio.sleep(self.seconds / 4)
            if not self.store.renew(self.fence, self.seconds, time.time()):
                raise FencedError(f"driver {self.fence} has lost its lease")

    def release(self) -> None:
        """The next driver need not wait."""
        self.store.release(self.fence)
