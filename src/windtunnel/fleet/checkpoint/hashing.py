"""The hash of a checkpoint's files: XXH3, 128 bits. It finds damage; it is no defence against someone who forges a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

PIECE = 8 << 20
"""Bytes that are read, hashed and written at a time."""


def hash_of(data: Any) -> str:
    """32 hex digits of the bytes of a buffer."""
    return str(xxhash.xxh3_128_hexdigest(data))


def hash_of_json(value: object) -> str:
    """The hash of `value` as JSON with sorted keys and no spaces."""
    return hash_of(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


class Hasher:
    """A hash that is fed in pieces."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, data: Any) -> None:
        """Takes the bytes of a buffer."""
        self._state.update(data)

    def hexdigest(self) -> str:
        """As `hash_of` all bytes so far."""
        return str(self._state.hexdigest())


def hash_of_file(path: Path) -> str:
    """The hash of a file's bytes. OSError where it cannot be read."""
    hasher = Hasher()
    for piece in _pieces(path):
        hasher.update(piece)
    return hasher.hexdigest()


def _pieces(path: Path) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(PIECE))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield buffer[:count]
