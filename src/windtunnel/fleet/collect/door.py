"""Accepts the connections of a collector, so that slow ones cannot keep others out.

A connection that has not yet made a request with the right token is a stranger's. A stranger has a limited time for its headers,
one address has a limited number of strangers, and all connections together leave files free. Where a limit is reached, the oldest
stranger goes: a request that is sent at once gets in, however many connections wait.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windtunnel.fleet.collect.policy import CollectPolicy

_AT_ONCE = 64
"""Connections that are accepted before those that are there are served."""
_RESERVED = 64
"""Files that are not connections: the log, the index, pipes, processes that answer."""
_HEAD_BYTES = 64 << 10
"""Largest head of a request."""
_PAUSE = 0.2
VISITOR = "windtunnel.visitor"
"""Key of the `Visitor` in the state of a request."""


class Visitor:
    """One connection: whose, whether it has shown the token, and what it is doing since when."""

    def __init__(self, door: Door, peer: str, sock: socket.socket) -> None:
        self.door, self.peer, self.sock = door, peer, sock
        self.known, self.phase, self.since, self.head_bytes = False, "head", time.monotonic(), 0
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    def enter(self, phase: str) -> None:
        """Begins a phase: head, body, answer or idle."""
        self.phase, self.since, self.head_bytes = phase, time.monotonic(), 0

    def welcome(self) -> None:
        """It has shown the token, or none is needed."""
        if not self.known:
            self.known = True
            self.door.welcome(self)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which tells its visitor how far a request is."""

    def __init__(self, visitor: Visitor, **told: Any) -> None:
        super().__init__(**told)
        self.visitor = visitor

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.visitor.transport = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.visitor.door.forget(self.visitor)

    def data_received(self, data: bytes) -> None:
        visitor = self.visitor
        visitor.head_bytes += len(data)
        super().data_received(data)
        if visitor.phase == "head" and visitor.head_bytes > _HEAD_BYTES:
            visitor.door.drop(visitor)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][VISITOR] = self.visitor
        if self.visitor.phase != "head":
            self.visitor.enter("head")

    def on_headers_complete(self) -> None:
        self.visitor.enter("body")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.visitor.enter("answer")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.visitor.enter("idle")
        super().on_response_complete()


class Door:
    """Accepts from `listener` and gives each connection a protocol. Must be used from one event loop."""

    def __init__(
        self, listener: socket.socket, policy: CollectPolicy, protocol: Callable[[Visitor], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._listener, self._policy, self._protocol, self._tls = listener, policy, protocol, tls
        self._most = max(16, min(policy.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _RESERVED))
        self._strangers: dict[str, dict[Visitor, None]] = {}
        self._oldest: dict[Visitor, None] = {}  # all strangers, the oldest first
        self._known: dict[Visitor, None] = {}
        self.dropped = 0
        """Connections that were closed because they were slow, or too many."""

    def open(self) -> None:
        """Begins to accept."""
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Accepts no more, and closes connections that have made no request."""
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
        for visitor in list(self._oldest):
            self.drop(visitor)

    def sweep(self) -> None:
        """Closes connections that have been too slow. Call it about once a second."""
        now, policy = time.monotonic(), self._policy
        most = {
            "head": policy.head_seconds,
            "body": policy.body_seconds,
            "answer": 2 * policy.question_seconds + policy.body_seconds,
        }
        for visitor in [*self._oldest, *self._known]:
            if now - visitor.since > most.get(visitor.phase, float("inf")):
                self.drop(visitor)

    def welcome(self, visitor: Visitor) -> None:
        """A stranger is known now."""
        if visitor in self._oldest:
            self._leave(visitor)
            self._known[visitor] = None

    def forget(self, visitor: Visitor) -> None:
        """A connection has ended."""
        self._leave(visitor)
        self._known.pop(visitor, None)

    def drop(self, visitor: Visitor) -> None:
        """Ends a connection."""
        self.dropped += 1
        self.forget(visitor)
        if visitor.transport is not None:
            visitor.transport.abort()
        elif visitor.task is not None:
            visitor.task.cancel()  # in the handshake of TLS; its end closes the socket

    def __len__(self) -> int:
        return len(self._oldest) + len(self._known)

    def _leave(self, visitor: Visitor) -> None:
        self._oldest.pop(visitor, None)
        of_peer = self._strangers.get(visitor.peer)
        if of_peer is not None:
            of_peer.pop(visitor, None)
            if not of_peer:
                del self._strangers[visitor.peer]

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                for visitor in list(self._oldest)[:_AT_ONCE]:
                    self.drop(visitor)
                loop.remove_reader(self._listener.fileno())
                loop.call_later(_PAUSE, self._reopen)
                return
            sock.setblocking(False)
            visitor = Visitor(self, str(address[0]) if isinstance(address, tuple) else "", sock)
            self._make_room(visitor.peer)
            self._strangers.setdefault(visitor.peer, {})[visitor] = None
            self._oldest[visitor] = None
            visitor.task = loop.create_task(self._serve(visitor))

    def _reopen(self) -> None:
        if self._listener.fileno() >= 0:
            self.open()

    def _make_room(self, peer: str) -> None:
        of_peer = self._strangers.get(peer, {})
        if len(of_peer) >= min(self._policy.strangers, self._most):
            self.drop(next(iter(of_peer)))
        while len(self) >= self._most:
            idle = (visitor for visitor in self._known if visitor.phase == "idle")
            oldest = next(iter(self._oldest), None) or next(idle, None) or next(iter(self._known))
            self.drop(oldest)

    async def _serve(self, visitor: Visitor) -> None:
        limit = self._policy.head_seconds if self._tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(visitor), visitor.sock, ssl=self._tls, ssl_handshake_timeout=limit
            )
        except (OSError, asyncio.CancelledError):  # ssl.SSLError is an OSError
            visitor.sock.close()
            self.forget(visitor)
        finally:
            visitor.task = None


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
