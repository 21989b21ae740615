"""Registry of the stores that a start can use, by name.

A `torch.distributed.Store` over Redis. A write and its notification are one pipeline; waiting uses a subscription instead of
polling.
"""

from __future__ import annotations

from builtins import set as Set
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

import torch.distributed as dist

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.fleet.startup.node_store import NodeStore


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
