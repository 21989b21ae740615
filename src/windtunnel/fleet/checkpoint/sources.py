"""Sources of a step's files: memory of this node if its bytes match the manifest, otherwise storage. Verified by hash before
use.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from windtunnel.fleet.checkpoint.flush_process import query_process
from windtunnel.fleet.checkpoint.hashing import PIECE, Hasher, hash_of
from windtunnel.fleet.checkpoint.ipc import socket_names
from windtunnel.fleet.checkpoint.manifest import ShardFile


@dataclass(frozen=True)
class LocalCopy:
    """A file in the memory of a flush process of this node."""

    socket_name: str
    hash: str
    list: int
    """0: the rank's own buffers; 1: replicas from another node."""
    slot: int
    offset: int
    bytes: int

    @property
    def source(self) -> str:
        """memory: of a rank of this node; neighbour: sent by another node."""
        return "neighbour" if self.list else "memory"


def local_copies(prefix: str, settle: float) -> dict[str, LocalCopy]:
    """The files in memory of this node's flush processes, by hash, after their saves have ended. Waits up to `settle` seconds for
    each.
    """
    found: dict[str, LocalCopy] = {}
    for socket_name in socket_names(prefix):
        answer = query_process(socket_name, {"do": "held"}, settle)
        for one in answer[0]["held"] if answer else []:
            here = LocalCopy(socket_name, one["hash"], one["list"], one["slot"], one["offset"], one["bytes"])
            if here.source == "memory" or here.hash not in found:
                found[here.hash] = here
    return found


def read_from_memory(here: LocalCopy, shard: ShardFile) -> memoryview | None:
    """The file's bytes, if the process still has them and they match the manifest."""
    answer = query_process(here.socket_name, {"do": "take", "list": here.list, "slot": here.slot}, 30.0)
    if answer is None or not answer[1]:
        return None
    descriptor = answer[1][0]
    size = os.fstat(descriptor).st_size
    mapped = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
    os.close(descriptor)
    view = memoryview(mapped)[here.offset : here.offset + shard.bytes]
    return view if len(view) == shard.bytes and hash_of(view) == shard.hash else None


def read_from_storage(path: Path, shard: ShardFile, count: Callable[[int], None]) -> memoryview | None:
    """The file's bytes, read once, if they match the manifest. `count` is called with the number of bytes read."""
    data = memoryview(bytearray(shard.bytes))
    hasher, done = Hasher(), 0
    try:
        with open(path, "rb", buffering=0) as file:
            while done < len(data) and (read := file.readinto(data[done : done + PIECE])):
                hasher.update(data[done : done + read])
                done += read
            longer = bool(file.read(1))
    except OSError:
        return None
    count(done)
    return data if done == len(data) and not longer and hasher.hexdigest() == shard.hash else None


def end_earlier_processes(prefix: str, attempt: str) -> None:
    """Ends the flush processes of attempts before `attempt` on this node."""
    for socket_name in socket_names(prefix):
        if not socket_name.startswith(prefix + attempt):
            query_process(socket_name, {"do": "retire"}, 1.0)
