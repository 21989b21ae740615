"""Hash of checkpoint files: XXH3, 128 bits. It detects damage, not deliberate forgery."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

PIECE = 8 << 20
"""Bytes that are read, hashed and written at a time."""


def hash_of(data: Any) -> str:
    """Hash of a buffer as 32 hex digits."""
    return str(xxhash.xxh3_128_hexdigest(data))


def hash_of_json(value: object) -> str:
    """The hash of `value` as JSON with sorted keys and no spaces."""
    return hash_of(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


class Hasher:
    """Incremental hash."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, data: Any) -> None:
        """Adds the bytes of a buffer."""
        self._state.update(data)

    def hexdigest(self) -> str:
        """The same as `hash_of` of all bytes so far."""
        return str(self._state.hexdigest())


def hash_of_file(path: Path) -> str:
    """Hash of a file's bytes. OSError if it cannot be read."""
    hasher = Hasher()
    for piece in _pieces(path):
        hasher.update(piece)
    return hasher.hexdigest()


def _pieces(path: Path) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(PIECE))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield buffer[:count]
