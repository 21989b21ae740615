"""Checkpoints in the memory of a node: buffers that processes share, copies into them, and those of a neighbour. Messages between
processes of one node: JSON in packets of a Unix socket, memory as file descriptors.

Replica of a node's staged shards in the memory of the next node, sent over TCP and authenticated by the job's token.

The receiver sends a challenge; the sender answers with its HMAC under the token, then sends files. Nothing is encrypted: use a
private network.

Shared-memory staging buffers: a rank's own shards, or replicas of a peer's.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.fleet.checkpoint.manifest import hash_of, is_plain_name
from windtunnel.fleet.wire.sockets import fill_exactly, read_exactly

LARGEST = 1 << 20
"""Largest message in bytes."""
FDS = 2


def send_message(connection: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Sends one message. OSError if nobody listens."""
    socket.send_fds(connection, [json.dumps(message).encode()], list(fds))


def receive_message(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with its file descriptors; None at the end of the connection. ValueError if it is none of ours."""
    raw, fds, _, _ = socket.recv_fds(connection, LARGEST, FDS)
    if not raw:
        return None
    message = json.loads(raw)
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message, fds


def packet_socket() -> socket.socket:
    """An unconnected packet socket."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    return made


def socket_prefix(folder: str, node: str) -> str:
    """Prefix of the socket names of processes that hold memory for `folder` on `node`."""
    key = "\0".join((os.path.realpath(folder), node, str(os.getuid())))
    return f"windtunnel-checkpoint-{hash_of(key.encode())[:16]}-"


def socket_names(prefix: str) -> list[str]:
    """Abstract socket names on this machine that begin with `prefix`."""
    names = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if f" @{prefix}" in line}
    return sorted(name[1:] for name in names)


def is_same_user(connection: socket.socket) -> bool:
    """Whether the peer process belongs to this user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", raw)[1] == os.getuid())


@dataclass(frozen=True)
class BufferedFile:
    """A file in a buffer: name, offset, bytes and hash."""

    name: str
    offset: int
    bytes: int
    hash: str


class SharedBuffers:
    """Shared-memory buffers by number, and the files of a step that each contains."""

    def __init__(self) -> None:
        self._memory: dict[int, tuple[int, mmap.mmap]] = {}
        self._files: dict[int, tuple[str, int, list[BufferedFile]]] = {}

    def slots(self, fds: list[int], size: int) -> None:
        """Replaces all buffers by those at `fds`, each of `size` bytes."""
        for slot in list(self._memory):
            self.drop(slot)
        for slot, descriptor in enumerate(fds):
            self.add(slot, descriptor, size)

    def add(self, slot: int, descriptor: int, size: int) -> memoryview:
        """Maps one buffer and returns its bytes."""
        self._memory[slot] = (descriptor, mmap.mmap(descriptor, max(size, 1)))
        return memoryview(self._memory[slot][1])

    def drop(self, slot: int) -> None:
        """Unmaps a buffer; its memory is freed when no other process has it."""
        self._files.pop(slot, None)
        descriptor, _ = self._memory.pop(slot)
        os.close(descriptor)

    def set_files(self, slot: int, attempt: str, step: int, files: list[BufferedFile]) -> None:
        """Records the files that a buffer contains."""
        self._files[slot] = (attempt, step, files)

    def view(self, slot: int, offset: int, size: int) -> memoryview:
        """Bytes of a buffer."""
        return memoryview(self._memory[slot][1])[offset : offset + size]

    def files(self, slot: int) -> list[tuple[BufferedFile, memoryview]]:
        """The files of a buffer with their bytes."""
        return [(one, self.view(slot, one.offset, one.bytes)) for one in self._files[slot][2]]

    def describe(self) -> list[dict[str, Any]]:
        """All files in the buffers, as plain data for a message."""
        return [{"slot": slot, "attempt": attempt, "step": step, **asdict(one)}
                for slot, (attempt, step, files) in list(self._files.items()) for one in files]  # fmt: skip

    def descriptor(self, slot: int) -> int:
        """File descriptor of a buffer."""
        return self._memory[slot][0]


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
