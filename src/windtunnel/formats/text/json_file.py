"""A JSON file as a value: plain or gzip, with a limit on what it unpacks to."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.base.errors import FileError

LARGEST = 256 * 1024 * 1024
"""Bytes, unpacked."""


def load_json(path: Path, wanted: str, limit: int = LARGEST) -> Any:
    """The value. FileError for a file that cannot be read, is larger than `limit`, or is no JSON."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise FileError(str(path), f"more than {limit} bytes", wanted)
        return msgspec.json.decode(data)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FileError(str(path), " ".join(str(error).split())[:120], wanted) from None
