"""Registry of the stores that a start can use, by name.

A `torch.distributed.Store` over Redis. A write and its notification are one pipeline; waiting uses a subscription instead of
polling.

Hierarchical store: one local store per node; only the node's leader, its lowest rank, uses the store that all nodes share. A store
that forwards every call and counts it, the same way for torch's own path and for `init_mesh`.
"""

from __future__ import annotations

from builtins import set as Set
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from struct import Struct
from threading import Lock
from time import monotonic
from typing import Any

import torch.distributed as dist

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.fleet.startup.layout import Operations

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


@dataclass(frozen=True)
class StorePlace:
    """Where a rank finds its stores."""

    host: str
    """Host of the store that all ranks share."""
    port: int
    """Its port."""
    rank: int
    world: int
    ranks_per_node: int = 8
    local_port: int = 0
    """Port of the node's own store on 127.0.0.1 (hierarchical only)."""
    serve: bool = True
    """Whether rank 0 runs the shared TCP server and each node's lowest rank the local one. False if they run elsewhere, as Redis
    always does.
    """
    prefix: str = ""
    """Distinguishes starts that share a Redis server."""
    timeout: timedelta = timedelta(seconds=300)


def _tcp(host: str, port: int, place: StorePlace, serve: bool) -> dist.Store:
    return dist.TCPStore(host, port, None, serve, place.timeout, wait_for_workers=False)


def _open_tcp(place: StorePlace) -> dist.Store:
    return _tcp(place.host, place.port, place, place.serve and place.rank == 0)


def _open_redis(place: StorePlace) -> dist.Store:
    return RedisStore(place.host, place.port, place.prefix, place.timeout)


def _open_hierarchical(place: StorePlace) -> dist.Store:
    if not place.local_port:
        raise SpecError("local_port", place.local_port, "a port of this node", "The hierarchical store has a server on each node.")
    local = _tcp("127.0.0.1", place.local_port, place, place.serve and place.rank % place.ranks_per_node == 0)
    return NodeStore(local, lambda: _open_tcp(place), place.rank, place.world, place.ranks_per_node)


OPENERS: dict[str, Callable[[StorePlace], dist.Store]] = {
    "tcp": _open_tcp,
    "redis": _open_redis,
    "hierarchical": _open_hierarchical,
}


def open_store(name: str, place: StorePlace) -> dist.Store:
    """Opens the store `name` of OPENERS for the rank at `place`. UnknownName for another name."""
    if name not in OPENERS:
        raise UnknownName("store", name, tuple(OPENERS))
    return OPENERS[name](place)


_COMPARE_SET = """
local now = redis.call('GET', KEYS[1])
if now == false then
  if ARGV[1] ~= '' then return ARGV[1] end
elseif now ~= ARGV[1] then return now end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('PUBLISH', KEYS[1], '')
return ARGV[2]
"""


def _bytes(value: bytes | str | Sequence[int]) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class RedisStore(dist.Store):
    """Keys under `prefix` of the Redis server at `host`:`port`.

    Semantics are those of TCPStore: `get`, `multi_get` and `wait` block until the keys exist, for at most `timeout`, and then raise
    torch's DistStoreError. A prefix must be new for each start of a job, because Redis outlives it.
    """

    def __init__(self, host: str, port: int, prefix: str = "", timeout: timedelta = timedelta(seconds=300)) -> None:
        super().__init__()
        try:
            import redis
        except ImportError:
            raise SpecError("store", "redis", "tcp, hierarchical", "Type: pip install 'windtunnel[fleet]'.") from None
        self.host, self.port, self.prefix = host, port, prefix
        self._timeout = timeout
        self._client: Any = redis.Redis(host=host, port=port, socket_timeout=None)
        self._compare: Any = self._client.register_script(_COMPARE_SET)

    def _key(self, key: str) -> bytes:
        return f"{self.prefix}/{key}".encode()

    def clone(self) -> RedisStore:
        """A store with its own connections."""
        return RedisStore(self.host, self.port, self.prefix, self._timeout)

    @property
    def timeout(self) -> timedelta:
        """Longest time that a call may wait for keys."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets how long a call may wait for keys."""
        self._timeout = timeout

    def set(self, key: str, value: bytes | str) -> None:
        """One round trip: SET and PUBLISH."""
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes | str]) -> None:
        """One round trip for all keys."""
        pipeline = self._client.pipeline(transaction=False)
        for key, value in zip(keys, values, strict=True):
            pipeline.set(self._key(key), _bytes(value))
            pipeline.publish(self._key(key), b"")
        pipeline.execute()

    def get(self, key: str) -> bytes:
        """Waits for the key. One round trip if it exists."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """MGET; if keys are missing, a subscription to them and another MGET after all have been written."""
        names = [self._key(key) for key in keys]
        values = self._client.mget(names) if names else []
        if any(value is None for value in values):
            self._await([name for name, value in zip(names, values, strict=True) if value is None], self._timeout)
            values = self._client.mget(names)
        return list(values)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Returns when all keys exist. DistStoreError after `timeout`."""
        self._await([self._key(key) for key in keys], self._timeout if timeout is None else timeout)

    def _await(self, names: list[bytes], timeout: timedelta) -> None:
        missing = self._missing_keys(names)
        if not missing:
            return
        end = monotonic() + timeout.total_seconds()
        listener = self._client.pubsub(ignore_subscribe_messages=False)
        try:
            listener.subscribe(*missing)
            subscribed = 0
            while subscribed < len(missing):  # later writes are announced
                message = listener.get_message(timeout=max(0.0, end - monotonic()))
                subscribed += message is not None and message["type"] == "subscribe"
                if monotonic() > end:
                    break
            left = self._missing_keys(list(missing))
            while left:
                message = listener.get_message(timeout=max(0.0, end - monotonic()))
                if message is not None and message["type"] == "message":
                    left.discard(message["channel"])
                elif monotonic() >= end:
                    shown = ", ".join(name.decode() for name in sorted(left)[:3])
                    raise dist.DistStoreError(
                        f"wait timeout after {timeout.total_seconds():g} s, {len(left)} keys missing: {shown}"
                    )
        finally:
            listener.close()

    def _missing_keys(self, names: list[bytes]) -> Set[bytes]:
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.exists(name)
        return {name for name, there in zip(names, pipeline.execute(), strict=True) if not there}

    def add(self, key: str, amount: int) -> int:
        """INCRBY; the new value."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.incrby(self._key(key), amount)
        pipeline.publish(self._key(key), b"")
        return int(pipeline.execute()[0])

    def append(self, key: str, value: bytes | str) -> None:
        """APPEND and PUBLISH."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.append(self._key(key), _bytes(value))
        pipeline.publish(self._key(key), b"")
        pipeline.execute()

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist, without waiting."""
        return not self._missing_keys([self._key(key) for key in keys])

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """Writes `desired` if the value is `expected`, or if there is none and `expected` is empty. Returns the value
        afterwards.
        """
        return bytes(self._compare(keys=[self._key(key)], args=[_bytes(expected), _bytes(desired)]))

    def delete_key(self, key: str) -> bool:
        """Deletes a key; whether it existed."""
        return bool(self._client.delete(self._key(key)))

    def num_keys(self) -> int:
        """Keys under the prefix, by SCAN: slow on a large server."""
        escaped = "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in self.prefix)
        return sum(1 for _ in self._client.scan_iter(match=f"{escaped}/*", count=1000))

    def has_extended_api(self) -> bool:
        """True: append, multi_get and multi_set are supported."""
        return True


def _size(value: bytes | str) -> int:
    return len(value.encode()) if isinstance(value, str) else len(value)


class CountingStore(dist.Store):
    """Counts the operations of `inner`: calls by kind, keys, bytes of values. C++ backends reach these methods through torch's
    trampolines.
    """

    def __init__(self, inner: dist.Store) -> None:
        super().__init__()
        self.inner = inner
        self.operations = Operations()
        self._lock = Lock()

    def _count(self, kind: str, keys: int = 1, size: int = 0) -> None:
        with self._lock:
            self.operations.add(kind, 1, keys, size)

    def clone(self) -> CountingStore:
        """Returns itself, so that all operations are counted together."""
        return self

    @property
    def timeout(self) -> timedelta:
        """Longest time that a call may wait."""
        found: timedelta = self.inner.timeout
        return found

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of the inner store."""
        self.inner.set_timeout(timeout)

    def set(self, key: str, value: bytes | str) -> None:
        """Counted as `set`."""
        self._count("set", 1, _size(value))
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        """Counted as `get`; waits for the key."""
        value: bytes = self.inner.get(key)
        self._count("get", 1, len(value))
        return value

    def add(self, key: str, amount: int) -> int:
        """Counted as `add`."""
        self._count("add")
        return int(self.inner.add(key, amount))

    def check(self, keys: Sequence[str]) -> bool:
        """Counted as `check`."""
        self._count("check", len(keys))
        return bool(self.inner.check(list(keys)))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Counted as `wait`."""
        self._count("wait", len(keys))
        if timeout is None:
            self.inner.wait(list(keys))
        else:
            self.inner.wait(list(keys), timeout)

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """Counted as `compare_set`."""
        self._count("compare_set", 1, _size(desired))
        found: bytes = self.inner.compare_set(key, expected, desired)
        return found

    def delete_key(self, key: str) -> bool:
        """Counted as `delete_key`."""
        self._count("delete_key")
        return bool(self.inner.delete_key(key))

    def num_keys(self) -> int:
        """Counted as `num_keys`."""
        self._count("num_keys", 0)
        return int(self.inner.num_keys())

    def append(self, key: str, value: bytes | str) -> None:
        """Counted as `append`."""
        self._count("append", 1, _size(value))
        self.inner.append(key, value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Counted as one `multi_get` of `len(keys)` keys; waits for all of them."""
        values: list[bytes] = self.inner.multi_get(list(keys))
        self._count("multi_get", len(keys), sum(map(len, values)))
        return values

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes | str]) -> None:
        """Counted as one `multi_set`."""
        self._count("multi_set", len(keys), sum(map(_size, values)))
        self.inner.multi_set(list(keys), list(values))

    def has_extended_api(self) -> bool:
        """As the inner store. Not counted: no message is sent."""
        return bool(self.inner.has_extended_api())
