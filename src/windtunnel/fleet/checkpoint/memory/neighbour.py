"""Replica of a node's staged shards in the memory of the next node, sent over TCP and authenticated by the job's token.

The receiver sends a challenge; the sender answers with its HMAC under the token, then sends files. Nothing is encrypted: use a
private network.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any

from windtunnel.fleet.checkpoint.manifest import hash_of, is_plain_name
from windtunnel.fleet.checkpoint.memory.shared_buffers import BufferedFile, SharedBuffers
from windtunnel.fleet.wire.sockets import fill_exactly, read_exactly

TIMEOUT = 60.0
HANDSHAKE = 10.0
"""Seconds in which a peer must show that it knows the token."""
MOST_UNKNOWN = 64
"""Peers at a time that have not shown it yet; the one that waits longest is hung up on."""
_LENGTH = struct.Struct("<I")
_HEAD = 1 << 20
"""Largest header that is accepted, in bytes."""


class Neighbour:
    """Keeps the newest replica that another node sent, and one more while it arrives."""

    def __init__(self, token: str) -> None:
        self.token, self.held = token, SharedBuffers()
        self._newest: int | None = None
        self._count = 0
        self._lock, self._receiving = threading.Lock(), threading.Lock()
        self._unknown: dict[socket.socket, None] = {}

    def listen(self, host: str) -> int:
        """Accepts replicas in a background thread; returns the port."""
        listener = socket.create_server((host, 0))
        threading.Thread(target=self._take, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1])

    def _take(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # no more files may be open for now
                time.sleep(0.1)
                continue
            with self._lock:
                self._unknown[connection] = None
                if len(self._unknown) > MOST_UNKNOWN:
                    _hang_up(next(iter(self._unknown)))
            threading.Thread(target=self._answer_peer, args=(connection,), daemon=True).start()

    def _answer_peer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError, LookupError, TypeError):  # an unauthorised peer, or a killed sender
            known = False
            try:
                connection.settimeout(HANDSHAKE)
                challenge = secrets.token_bytes(32)
                connection.sendall(challenge)
                known = hmac.compare_digest(read_exactly(connection, 32), _answer(self.token, challenge))
            finally:
                with self._lock:
                    self._unknown.pop(connection, None)
            if known:
                connection.settimeout(TIMEOUT)
                with self._receiving:
                    self._receive(connection)
                connection.sendall(b"+")

    def _receive(self, connection: socket.socket) -> None:
        size = _LENGTH.unpack(read_exactly(connection, _LENGTH.size))[0]
        if size > _HEAD:
            raise ValueError("a head of more than a MiB")
        head: dict[str, Any] = json.loads(read_exactly(connection, size))
        files = [BufferedFile(**one) for one in head["files"]]
        if not all(is_plain_name(one.name) for one in files):
            raise ValueError("a name that leads elsewhere")
        total = sum(one.bytes for one in files)
        slot, self._count = self._count, self._count + 1
        descriptor = os.memfd_create("windtunnel-neighbour")
        os.ftruncate(descriptor, max(total, 1))
        view = self.held.add(slot, descriptor, total)
        try:
            fill_exactly(connection, view[:total])
            if any(hash_of(view[one.offset : one.offset + one.bytes]) != one.hash for one in files):
                raise ValueError("other bytes than were sent")
        except (OSError, ValueError):
            self.held.drop(slot)
            raise
        self.held.set_files(slot, head["attempt"], head["step"], files)
        if self._newest is not None:
            self.held.drop(self._newest)
        self._newest = slot


def send_copy(address: tuple[str, int], token: str, attempt: str, step: int, files: list[tuple[BufferedFile, memoryview]]) -> None:
    """Sends files to the process at `address` and returns when it has received them. OSError if it does not accept them."""
    placed, at = [], 0
    for one, _ in files:
        placed.append({"name": one.name, "offset": at, "bytes": one.bytes, "hash": one.hash})
        at += one.bytes
    head = json.dumps({"attempt": attempt, "step": step, "files": placed}).encode()
    with socket.create_connection(address, TIMEOUT) as connection:
        connection.sendall(_answer(token, read_exactly(connection, 32)))
        connection.sendall(_LENGTH.pack(len(head)) + head)
        for _, data in files:
            connection.sendall(data)
        read_exactly(connection, 1)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _answer(token: str, challenge: bytes) -> bytes:
    return hmac.digest(token.encode(), challenge, hashlib.sha256)
