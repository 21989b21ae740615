"""uvicorn's server behind a `Door`."""

from __future__ import annotations

import asyncio
import socket

import uvicorn

from windtunnel.fleet.collect.door import Door, GuardedProtocol, Visitor
from windtunnel.fleet.collect.policy import CollectPolicy


class GuardedServer(uvicorn.Server):
    """Serves what a `Door` accepts from `listener`."""

    door: Door

    def __init__(self, config: uvicorn.Config, policy: CollectPolicy, listener: socket.socket) -> None:
        super().__init__(config)
        self.door = Door(listener, policy, self._protocol, config.ssl)

    def _protocol(self, visitor: Visitor) -> asyncio.Protocol:
        return GuardedProtocol(
            visitor, config=self.config, server_state=self.server_state, app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )  # fmt: skip

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Opens the door."""
        self.servers = []
        self.door.open()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the door, and waits for requests for a limited time."""
        self.door.close()
        await super().shutdown(sockets)
