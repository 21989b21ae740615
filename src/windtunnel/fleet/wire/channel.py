"""One connection: frames of a four-byte length and a message, in both directions. Connections between driver and agents: TLS with
one pinned certificate, or a Unix socket that only its owner can open.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from asyncio import sslproto
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.base.units import host_port
from windtunnel.fleet.wire.secrets import KEY, NAME, Secrets

FRAME_LIMIT = 4 << 20
"""Largest message in bytes; a longer one closes the connection."""
STRANGER_LIMIT = 64 << 10
"""The same before the peer has authenticated."""
_LENGTH = struct.Struct("<I")


class Channel(asyncio.Protocol):
    """Calls `on_message` for each message of the type `reads`, and `on_lost` once, with the reason, when the peer is gone.

    A message of another type, or one that is too long, closes the connection.
    """

    def __init__(
        self, reads: Any, on_message: Callable[[Channel, Any], None], on_lost: Callable[[Channel, str], None],
        limit: int = FRAME_LIMIT,
    ) -> None:  # fmt: skip
        self.limit = limit
        self.peer = ""
        self._decoder = msgspec.msgpack.Decoder(reads)
        self._encoder = msgspec.msgpack.Encoder()
        self._on_message, self._on_lost = on_message, on_lost
        self._transport: asyncio.Transport | None = None
        self._read = bytearray()
        self._reason = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = str(transport.get_extra_info("peername") or "a local process")

    def data_received(self, data: bytes) -> None:
        self._read += data
        at = 0
        while len(self._read) - at >= 4 and self._transport is not None:
            (length,) = _LENGTH.unpack_from(self._read, at)
            if length > self.limit:
                self.close(f"a message of {length} bytes; at most {self.limit} are read")
                return
            if len(self._read) - at - 4 < length:
                break
            try:
                message = self._decoder.decode(memoryview(self._read)[at + 4 : at + 4 + length])
            except msgspec.MsgspecError as error:
                self.close(f"a message that is none of the protocol: {error}")
                return
            at += 4 + length
            self._on_message(self, message)
        del self._read[:at]

    def send(self, message: Any) -> bool:
        """Sends a message. False if the peer is gone."""
        if self._transport is None or self._transport.is_closing():
            return False
        raw = self._encoder.encode(message)
        self._transport.write(_LENGTH.pack(len(raw)) + raw)
        return True

    def close(self, reason: str = "closed here") -> None:
        """Closes the connection."""
        if self._transport is not None and not self._reason:
            self._reason = reason
            transport, self._transport = self._transport, None
            transport.abort() if "message" in reason else transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._on_lost(self, self._reason or str(error or "the peer closed the connection"))


UNIX = "unix:"
ALLOWED = "HOST:PORT or unix:PATH"
HANDSHAKE_SECONDS = 60
READ_BYTES = 32 << 10
"""Read buffer of a TLS connection: two TLS records. asyncio's default is 256 KiB, 3 GiB for a driver of 12,288 agents."""


class SmallBufferTls(sslproto.SSLProtocol):
    """asyncio's TLS protocol with a read buffer of `READ_BYTES`.

    asyncio allocates `max_size` bytes per connection and has no argument for it. As a protocol of a plain connection, this subclass
    leaves other TLS connections of the process alone. The base class is undocumented: tests/unit/test_fleet_wire.py fails on a
    Python version that changes it.
    """

    max_size = READ_BYTES


async def listen(address: str, secrets: Secrets, folder: Path, channel: Callable[[], Channel]) -> tuple[asyncio.Server, str]:
    """Listens at HOST:PORT (port 0: any free one) or unix:PATH; the server and its address. `folder` has the driver's key."""
    loop = asyncio.get_running_loop()
    if address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        Path(path).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            server = await loop.create_unix_server(channel, path, backlog=4096)
        finally:
            os.umask(before)
        return server, address
    host, port = host_port(address, "--listen", ALLOWED)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    certificate = folder / "driver-cert.pem"
    certificate.write_text(secrets.certificate, encoding="utf-8")
    context.load_cert_chain(certificate, folder / KEY)

    def accept() -> SmallBufferTls:
        nobody: Any = None  # waits for the handshake of an accepted connection
        return SmallBufferTls(loop, channel(), context, nobody, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS)

    server = await loop.create_server(accept, host, port, backlog=4096)
    return server, f"{host}:{server.sockets[0].getsockname()[1]}"


async def connect(address: str, secrets: Secrets, channel: Callable[[], Channel]) -> Channel:
    """Connects to the driver that has the certificate of `secrets`. OSError (including ssl.SSLError) if that fails."""
    loop = asyncio.get_running_loop()
    if address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        if os.stat(path).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        return (await loop.create_unix_connection(channel, sock=await _unix(path)))[1]
    host, port = host_port(address, "--driver", ALLOWED)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=secrets.certificate)
    made, handshake = channel(), loop.create_future()
    tls = SmallBufferTls(loop, made, context, handshake, server_hostname=NAME, ssl_handshake_timeout=HANDSHAKE_SECONDS)
    transport, _ = await loop.create_connection(lambda: tls, host, port)
    try:
        await handshake
    except BaseException:
        transport.close()
        raise
    return made


async def _unix(path: str) -> socket.socket:
    """A connected Unix socket. If the listener's queue is full, Linux returns EAGAIN at once, which asyncio would take for a
    connection in progress; here it is retried.
    """
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    try:
        while True:
            try:
                sock.connect(path)
                return sock
            except BlockingIOError:
                await asyncio.sleep(0.02)
    except BaseException:
        sock.close()
        raise
