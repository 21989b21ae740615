"""uvicorn behind a door that drops slow strangers, with the start and end of the application."""

from __future__ import annotations

import asyncio
import socket

from windtunnel.fleet.collect.door import GuardedServer


class ServiceServer(GuardedServer):
    """Runs the application's own start and end too, which a mounted page needs."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """The application first, then the door."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        await super().startup(sockets)

    async def main_sweep(self) -> None:
        """Ends connections that are too slow, once a second."""
        while True:
            await asyncio.sleep(1.0)
            self.door.sweep()
