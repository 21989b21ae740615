"""Throughput of a TCP connection, timed at the receiver."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Iterator

from windtunnel.base.addresses import host_port
from windtunnel.fleet.diagnose.result import SelfTestOptions
from windtunnel.fleet.wire.sockets import fill_exactly, read_exactly

CHUNK = 1 << 20
_KEY = 32
_END = b"\x01"
_RETRY = 0.2


@contextlib.contextmanager
def server(options: SelfTestOptions) -> Iterator[socket.socket]:
    """A connection from the peer that knows the key; others are refused. TimeoutError after `limit` seconds."""
    host, port = host_port(options.listen, "--listen")
    until = time.monotonic() + options.limit
    with socket.create_server((host, port)) as listening:
        while True:
            listening.settimeout(max(0.01, until - time.monotonic()))
            connection, _ = listening.accept()
            connection.settimeout(options.limit)
            try:
                if hmac.compare_digest(read_exactly(connection, _KEY), _digest(options.key)):
                    break
            except OSError:
                pass
            connection.close()
        with connection:
            yield connection


@contextlib.contextmanager
def client(options: SelfTestOptions) -> Iterator[socket.socket]:
    """A connection to the peer, which may start to listen later. OSError if it does not within `limit` seconds."""
    host, port = host_port(options.peer, "--peer")
    until = time.monotonic() + options.limit
    while True:
        try:
            connection = socket.create_connection((host, port), max(0.01, until - time.monotonic()))
            break
        except OSError:
            if time.monotonic() + _RETRY > until:
                raise
            time.sleep(_RETRY)
    with connection:
        connection.settimeout(options.limit)
        connection.sendall(_digest(options.key))
        yield connection


def push(connection: socket.socket, seconds: float) -> float:
    """Sends for `seconds`; returns bytes per second as timed by the receiver."""
    body, until = bytes(CHUNK), time.monotonic() + seconds
    sent = False
    while not sent or time.monotonic() < until:
        connection.sendall(body)
        sent = True
    connection.sendall(_END + bytes(CHUNK - 1))
    return float(json.loads(read_exactly(connection, _KEY)))


def pull(connection: socket.socket) -> float:
    """Receives what `push` sends; returns bytes per second after the first chunk, and sends the rate back."""
    buffer, total, begun = bytearray(CHUNK), 0, 0.0
    while True:
        fill_exactly(connection, memoryview(buffer))
        now = time.perf_counter()
        if total == 0:
            begun = now
        total += CHUNK
        if buffer[0]:
            break
    rate = (total - CHUNK) / max(now - begun, 1e-9)
    connection.sendall(f"{rate:.6e}".encode().ljust(_KEY))
    return rate


def _digest(key: str) -> bytes:
    return hashlib.sha256(b"windtunnel pair " + key.encode()).digest()
