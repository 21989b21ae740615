"""A Chakra file as a sequence of messages: each is a varint length and that many bytes. Read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

LARGEST = 2**28
"""Bytes of a message beyond which its length is taken for broken: a node of a real trace has a few hundred."""


class Bytes(Protocol):
    """What can be read piece by piece."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; fewer only at the end."""


class Frames:
    """Iterates over the messages of a stream; `cut` says why it stopped early, empty where the stream ended with a message."""

    def __init__(self, stream: Bytes) -> None:
        self.stream, self.cut, self.count = stream, "", 0

    def __iter__(self) -> Iterator[bytes]:
        import zlib

        try:
            while (length := self._length()) is not None:
                data = self.stream.read(length)
                if len(data) < length:
                    self.cut = f"message {self.count} is cut off: {len(data)} of {length} bytes"
                    return
                self.count += 1
                yield data
        except (EOFError, OSError, zlib.error) as error:
            self.cut = f"the stream breaks off after {self.count} messages ({error})"

    def _length(self) -> int | None:
        value = shift = 0
        while True:
            byte = self.stream.read(1)
            if not byte:
                if shift:
                    self.cut = f"the length of message {self.count} is cut off"
                return None
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                break
            shift += 7
            if shift > 63:
                value = LARGEST + 1
                break
        if value > LARGEST:
            self.cut = f"message {self.count} has no plausible length"
            return None
        return value


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at a place and the place behind it. ValueError where the data ends or the number has more than 64 bits."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a varint that does not end")


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field, wire type, value) of a message, as the protobuf wire format has them. ValueError for bytes that are no message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("field 0")
        if wire == 0:
            value, at = varint(data, at)
            yield number, wire, value
            continue
        if wire == 2:
            size, at = varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("a field that is cut off")
        yield number, wire, data[at : at + size]
        at += size
