"""Hierarchical store: one local store per node; only the node's leader, its lowest rank, uses the store that all nodes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from struct import Struct

import torch.distributed as dist

_ENTRY = Struct("<II")


def pack(values: dict[int, bytes]) -> bytes:
    """Packs numbered values into one."""
    return b"".join(_ENTRY.pack(number, len(value)) + value for number, value in values.items())


def unpack(blob: bytes) -> dict[int, bytes]:
    """Inverse of `pack`."""
    values, at = {}, 0
    while at < len(blob):
        number, size = _ENTRY.unpack_from(blob, at)
        at += _ENTRY.size
        values[number] = bytes(blob[at : at + size])
        at += size
    return values


class NodeStore(dist.Store):
    """`local`: the store of this rank's node. `shared` opens the store of all nodes; a rank that is not a leader calls it only if
    the object is used as an ordinary store, for instance by a later `new_group`.
    """

    def __init__(self, local: dist.Store, shared: Callable[[], dist.Store], rank: int, world: int, ranks_per_node: int) -> None:
        super().__init__()
        self.local, self._open = local, shared
        self.rank, self.world, self.ranks_per_node = rank, world, ranks_per_node
        self._shared: dist.Store | None = shared() if rank % ranks_per_node == 0 else None

    @property
    def shared_store(self) -> dist.Store:
        """The store of all nodes; connects on first use."""
        if self._shared is None:
            self._shared = self._open()
        return self._shared

    def exchange(self, prefix: str, blob: bytes, peers_of: Callable[[int], Iterable[int]]) -> dict[int, bytes]:
        """Publishes this rank's `blob` and returns the blobs of at least `peers_of(rank)`, by rank. Every rank of a node must call
        it.
        """
        node = self.rank // self.ranks_per_node
        first = node * self.ranks_per_node
        others = range(first + 1, min(first + self.ranks_per_node, self.world))
        if self.rank != first:
            self.local.set(f"{prefix}/{self.rank}", blob)
            return unpack(self.local.get(f"{prefix}/all"))
        own = {first: blob}
        if others:
            own.update(zip(others, self.local.multi_get([f"{prefix}/{rank}" for rank in others]), strict=True))
        self.shared_store.set(f"{prefix}/node/{node}", pack(own))
        needed = {peer for member in own for peer in peers_of(member)}
        nodes = sorted({peer // self.ranks_per_node for peer in needed} - {node})
        found = dict(own)
        if nodes:
            for part in self.shared_store.multi_get([f"{prefix}/node/{other}" for other in nodes]):
                found.update(unpack(part))
        if others:
            self.local.set(f"{prefix}/all", pack({rank: value for rank, value in found.items() if rank in needed}))
        return found

    def clone(self) -> NodeStore:
        """Returns itself: its connections belong to the node."""
        return self

    @property
    def timeout(self) -> timedelta:
        """Longest time that a call may wait."""
        found: timedelta = self.local.timeout
        return found

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of both stores."""
        self.local.set_timeout(timeout)
        if self._shared is not None:
            self._shared.set_timeout(timeout)

    def set(self, key: str, value: bytes | str) -> None:
        """Uses the shared store, as do all methods below."""
        self.shared_store.set(key, value)

    def get(self, key: str) -> bytes:
        """Waits for the key."""
        found: bytes = self.shared_store.get(key)
        return found

    def add(self, key: str, amount: int) -> int:
        """The new value."""
        return int(self.shared_store.add(key, amount))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist."""
        return bool(self.shared_store.check(list(keys)))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Returns when all keys exist."""
        if timeout is None:
            self.shared_store.wait(list(keys))
        else:
            self.shared_store.wait(list(keys), timeout)

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """The value afterwards."""
        found: bytes = self.shared_store.compare_set(key, expected, desired)
        return found

    def delete_key(self, key: str) -> bool:
        """Deletes a key; whether it existed."""
        return bool(self.shared_store.delete_key(key))

    def num_keys(self) -> int:
        """Keys of the shared store."""
        return int(self.shared_store.num_keys())

    def append(self, key: str, value: bytes | str) -> None:
        """Appends to a value."""
        self.shared_store.append(key, value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Waits for all keys."""
        found: list[bytes] = self.shared_store.multi_get(list(keys))
        return found

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes | str]) -> None:
        """Writes all keys."""
        self.shared_store.multi_set(list(keys), list(values))

    def has_extended_api(self) -> bool:
        """As the shared store."""
        return bool(self.shared_store.has_extended_api())
