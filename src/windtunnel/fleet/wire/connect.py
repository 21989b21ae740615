"""Listening and connecting: TLS with one pinned certificate, or a socket file that only its owner can open."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from pathlib import Path

from windtunnel.base.addresses import host_port
from windtunnel.fleet.wire.channel import Channel
from windtunnel.fleet.wire.secrets import KEY, NAME, Secrets

UNIX = "unix:"
ALLOWED = "HOST:PORT or unix:PATH"
HANDSHAKE_SECONDS = 60.0
READ_BYTES = 32 << 10
"""That asyncio reads at once, and keeps a buffer for, on each TLS connection: two records of TLS. Its own is 256 KiB, 3 GiB for a
driver of 12,288 agents."""


async def listen(address: str, secrets: Secrets, folder: Path, channel: Callable[[], Channel]) -> tuple[asyncio.Server, str]:
    """A server at HOST:PORT (port 0: any) or unix:PATH, and the address that it has. `folder` has the driver's key."""
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
    sslproto.SSLProtocol.max_size = READ_BYTES  # of all TLS connections of this process: no argument says it
    certificate = folder / "driver-cert.pem"
    certificate.write_text(secrets.certificate, encoding="utf-8")
    context.load_cert_chain(certificate, folder / KEY)
    server = await loop.create_server(
        channel, host, port, ssl=context, backlog=4096, ssl_handshake_timeout=HANDSHAKE_SECONDS
    )  # fmt: skip
    return server, f"{host}:{server.sockets[0].getsockname()[1]}"


async def connect(address: str, secrets: Secrets, channel: Callable[[], Channel]) -> Channel:
    """A connection to the driver that has the certificate of `secrets`. OSError (ssl.SSLError is one) where there is none."""
    loop = asyncio.get_running_loop()
    if address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        if os.stat(path).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        return (await loop.create_unix_connection(channel, sock=await _unix(path)))[1]
    host, port = host_port(address, "--driver", ALLOWED)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    sslproto.SSLProtocol.max_size = READ_BYTES
    context.load_verify_locations(cadata=secrets.certificate)
    made = await loop.create_connection(
        channel, host, port, ssl=context, server_hostname=NAME, ssl_handshake_timeout=HANDSHAKE_SECONDS
    )
    return made[1]


async def _unix(path: str) -> socket.socket:
    """A connected socket. A full queue of the listener is no error: Linux says EAGAIN at once, and asyncio would take that for a
    connection under way."""
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
