"""A store that forwards every call and counts it, the same way for torch's own path and for `init_mesh`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from threading import Lock

import torch.distributed as dist

from windtunnel.fleet.startup.operation_counts import Operations


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
