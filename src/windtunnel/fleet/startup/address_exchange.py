"""A single exchange of addresses for all groups of a rank.

While a group is created, gloo writes a rank's address and reads those of all others, one group after another. Here the groups of a
rank are created in threads, each over a `SlotStore`. Their values are collected until all groups have written. Then the rank
publishes everything as one value, reads its peers' values in one call, and each group finds its addresses in memory. A rank
publishes before it waits for anybody, and waits once, so no order of ranks or groups can cause a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import timedelta
from struct import Struct
from threading import Condition

import torch.distributed as dist

from windtunnel.base.errors import WindtunnelError
from windtunnel.fleet.startup.node_store import NodeStore

_SLOT = Struct("<HI")


class StartupTimeout(WindtunnelError):
    """Ranks that did not publish their addresses in time; `missing` lists them."""

    def __init__(self, missing: Sequence[int], seconds: float, waited_for: str) -> None:
        self.missing = tuple(missing)
        shown = ", ".join(map(str, self.missing[:16])) + (", …" if len(self.missing) > 16 else "")
        super().__init__(f"after {seconds:g} s, {len(self.missing)} {waited_for} did not start: {shown}. Look at their logs first.")


def exchange(store: dist.Store, prefix: str, rank: int, blob: bytes, peers_of: Callable[[int], Iterable[int]]) -> dict[int, bytes]:
    """Publishes `blob` for `rank` and returns the blobs of `peers_of(rank)`, by rank. StartupTimeout lists the missing ranks."""
    if isinstance(store, NodeStore):
        return store.exchange(prefix, blob, peers_of)
    store.set(f"{prefix}/{rank}", blob)
    peers = sorted(peers_of(rank))
    if not peers:
        return {}
    keys = [f"{prefix}/{peer}" for peer in peers]
    try:
        return dict(zip(peers, store.multi_get(keys), strict=True))
    except dist.DistStoreError as error:
        missing = [peer for peer, key in zip(peers, keys, strict=True) if not store.check([key])]
        if not missing:
            raise
        raise StartupTimeout(missing, store.timeout.total_seconds(), "ranks") from error


class Gathering:
    """Values that the slots of a rank write, and those of its peers after all slots have written.

    `members`: the ranks of each slot's group, because backends of different groups write the same keys. `share` publishes this
    rank's blob and returns those of its peers, by rank.
    """

    def __init__(self, members: Sequence[Container[int]], share: Callable[[bytes], Mapping[int, bytes]]) -> None:
        self._members, self._share = members, share
        self._written: dict[int, tuple[str, bytes]] = {}
        self._found: list[dict[str, bytes]] | None = None
        self._error: BaseException | None = None
        self._changed = Condition()

    def offer(self, slot: int, key: str, value: bytes) -> bool:
        """Stores a slot's first value; that of the last slot starts the exchange. False if the slot has written before."""
        with self._changed:
            if slot in self._written:
                return False
            self._written[slot] = (key, value)
            if len(self._written) < len(self._members):
                return True
        try:
            found: list[dict[str, bytes]] = [{key: value} for _, (key, value) in sorted(self._written.items())]
            for rank, blob in self._share(_pack_slots(self._written)).items():
                for number, name, written in _unpack_slots(blob):
                    if rank in self._members[number]:
                        found[number][name] = written
        except BaseException as error:
            self.fail(error)
            raise
        with self._changed:
            self._found = found
            self._changed.notify_all()
        return True

    def fail(self, error: BaseException) -> None:
        """Wakes every waiting slot; they raise `error`."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def wait_for_values(self, slot: int, timeout: timedelta) -> dict[str, bytes]:
        """Waits for the exchange; key → value of a slot, of this rank and its peers."""
        with self._changed:
            # Twice the timeout of the exchange, which reports the missing ranks itself.
            self._changed.wait_for(lambda: self._found is not None or self._error is not None, 2 * timeout.total_seconds() + 5)
            if self._error is not None:
                raise self._error
            if self._found is None:
                raise dist.DistStoreError(f"the other groups of this rank were not created within {timeout.total_seconds():g} s")
            return self._found[slot]


def _pack_slots(written: dict[int, tuple[str, bytes]]) -> bytes:
    parts = []
    for slot, (key, value) in sorted(written.items()):
        name = key.encode()
        parts += [_SLOT.pack(slot, len(name)), name, _SLOT.pack(slot, len(value)), value]
    return b"".join(parts)


def _unpack_slots(blob: bytes) -> Iterable[tuple[int, str, bytes]]:
    at, fields, slot = 0, [], 0
    while at < len(blob):
        slot, size = _SLOT.unpack_from(blob, at)
        at += _SLOT.size
        fields.append(bytes(blob[at : at + size]))
        at += size
        if len(fields) == 2:
            yield slot, fields[0].decode(), fields[1]
            fields = []


class SlotStore(dist.Store):
    """The store over which a group of a rank is created: its first value goes into the gathering, everything else to `behind`."""

    def __init__(self, gathering: Gathering, slot: int, behind: dist.Store) -> None:
        super().__init__()
        self._gathering, self._slot, self._behind = gathering, slot, behind

    def clone(self) -> SlotStore:
        """Returns itself."""
        return self

    @property
    def timeout(self) -> timedelta:
        """Longest time that a call may wait."""
        found: timedelta = self._behind.timeout
        return found

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of the store behind."""
        self._behind.set_timeout(timeout)

    def set(self, key: str, value: bytes | str) -> None:
        """Goes into the gathering if it is the slot's first value."""
        if not self._gathering.offer(self._slot, key, value.encode() if isinstance(value, str) else bytes(value)):
            self._behind.set(key, value)

    def get(self, key: str) -> bytes:
        """From memory if a peer has published it."""
        found = self._gathering.wait_for_values(self._slot, self.timeout)
        return found[key] if key in found else self._behind.get(key)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Sends no message for keys that peers have published."""
        limit = self.timeout if timeout is None else timeout
        found = self._gathering.wait_for_values(self._slot, limit)
        others = [key for key in keys if key not in found]
        if others:
            self._behind.wait(others, limit)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """As `get` of each key."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes | str]) -> None:
        """As `set` of each key."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist."""
        found = self._gathering.wait_for_values(self._slot, self.timeout)
        others = [key for key in keys if key not in found]
        return not others or bool(self._behind.check(others))

    def add(self, key: str, amount: int) -> int:
        """Uses the store behind, as do all methods below."""
        return int(self._behind.add(key, amount))

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """The value afterwards."""
        found: bytes = self._behind.compare_set(key, expected, desired)
        return found

    def delete_key(self, key: str) -> bool:
        """Deletes a key; whether it existed."""
        return bool(self._behind.delete_key(key))

    def num_keys(self) -> int:
        """Keys of the store behind."""
        return int(self._behind.num_keys())

    def append(self, key: str, value: bytes | str) -> None:
        """Appends to a value."""
        self._behind.append(key, value)

    def has_extended_api(self) -> bool:
        """As the store behind."""
        return bool(self._behind.has_extended_api())
