"""Sources of a step's files: memory of this node if its bytes match the manifest, otherwise storage. Verified by hash before
use.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.fleet.checkpoint.flush_process import query_process
from windtunnel.fleet.checkpoint.folder import StoreError, StorePath
from windtunnel.fleet.checkpoint.manifest import PIECE, Hasher, ShardFile, hash_of
from windtunnel.fleet.checkpoint.memory import socket_names

_LEAST_WAIT = 0.1
"""Seconds that a process is given to answer when the others have used up the time."""


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
    all of them together.
    """
    found: dict[str, LocalCopy] = {}
    end = time.monotonic() + settle
    for socket_name in socket_names(prefix):
        answer = query_process(socket_name, {"do": "held"}, max(end - time.monotonic(), _LEAST_WAIT))
        for here in _copies(socket_name, answer[0]) if answer else []:
            if here.source == "memory" or here.hash not in found:
                found[here.hash] = here
    return found


def _copies(socket_name: str, message: dict[str, Any]) -> list[LocalCopy]:
    """What a process says that it holds; nothing where it says it in another way than ours."""
    try:
        listed = [(one["hash"], one["list"], one["slot"], one["offset"], one["bytes"]) for one in message["held"]]
    except (KeyError, TypeError):
        return []
    return [
        LocalCopy(socket_name, digest, *numbers)
        for digest, *numbers in listed
        if isinstance(digest, str) and all(type(one) is int and one >= 0 for one in numbers)
    ]


def read_from_memory(here: LocalCopy, shard: ShardFile) -> memoryview | None:
    """The file's bytes, if the process still has them and they match the manifest."""
    answer = query_process(here.socket_name, {"do": "take", "list": here.list, "slot": here.slot}, 30.0)
    if answer is None or not answer[1]:
        return None
    descriptor, *others = answer[1]
    for one in others:
        os.close(one)
    try:
        mapped = mmap.mmap(descriptor, os.fstat(descriptor).st_size, prot=mmap.PROT_READ)
    except (OSError, ValueError):  # no memory, or none of it
        return None
    finally:
        os.close(descriptor)
    view = memoryview(mapped)[here.offset : here.offset + shard.bytes]
    return view if len(view) == shard.bytes and hash_of(view) == shard.hash else None


def read_from_storage(path: Path | StorePath, shard: ShardFile, count: Callable[[int], None]) -> memoryview | None:
    """The file's bytes, read once, if they match the manifest. `count` is called with the number of bytes read. StoreError for a
    store that does not answer: its bytes may be as they were written.
    """
    data = memoryview(bytearray(shard.bytes))
    hasher, done, longer = Hasher(), 0, False
    try:
        if isinstance(path, StorePath):
            for piece in path.pieces(shard.bytes):
                end = min(done + len(piece), len(data))
                data[done:end] = piece[: end - done]
                hasher.update(piece)
                done = end
        else:
            with open(path, "rb", buffering=0) as file:
                while done < len(data) and (read := file.readinto(data[done : done + PIECE])):
                    hasher.update(data[done : done + read])
                    done += read
                longer = bool(file.read(1))
    except StoreError:
        raise
    except OSError:
        return None
    count(done)
    return data if done == len(data) and not longer and hasher.hexdigest() == shard.hash else None


def end_earlier_processes(prefix: str, attempt: str) -> None:
    """Ends the flush processes of attempts before `attempt` on this node."""
    for socket_name in socket_names(prefix):
        if not socket_name.startswith(prefix + attempt):
            query_process(socket_name, {"do": "retire"}, 1.0)
