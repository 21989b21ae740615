"""One connection: frames of a four-byte length and a message, in both directions."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import msgspec

FRAME_LIMIT = 4 << 20
"""Largest message in bytes; a longer one closes the connection."""
STRANGER_LIMIT = 64 << 10
"""The same before the peer has authenticated."""
_LENGTH = struct.Struct("<I")


class Channel(asyncio.Protocol):
    """Calls `on_message` for each message of the type `reads`, and `on_lost` once, with the reason, when the peer is gone.

    A message of another type, or one that is too long, closes the connection.
    """

    def __init__(
        self, reads: Any, on_message: Callable[[Channel, Any], None], on_lost: Callable[[Channel, str], None],
        limit: int = FRAME_LIMIT,
    ) -> None:  # fmt: skip
        self.limit = limit
        self.peer = ""
        self._decoder = msgspec.msgpack.Decoder(reads)
        self._encoder = msgspec.msgpack.Encoder()
        self._on_message, self._on_lost = on_message, on_lost
        self._transport: asyncio.Transport | None = None
        self._read = bytearray()
        self._reason = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = str(transport.get_extra_info("peername") or "a local process")

    def data_received(self, data: bytes) -> None:
        self._read += data
        at = 0
        while len(self._read) - at >= 4 and self._transport is not None:
            (length,) = _LENGTH.unpack_from(self._read, at)
            if length > self.limit:
                self.close(f"a message of {length} bytes; at most {self.limit} are read")
                return
            if len(self._read) - at - 4 < length:
                break
            try:
                message = self._decoder.decode(memoryview(self._read)[at + 4 : at + 4 + length])
            except msgspec.MsgspecError as error:
                self.close(f"a message that is none of the protocol: {error}")
                return
            at += 4 + length
            self._on_message(self, message)
        del self._read[:at]

    def send(self, message: Any) -> bool:
        """Sends a message. False if the peer is gone."""
        if self._transport is None or self._transport.is_closing():
            return False
        raw = self._encoder.encode(message)
        self._transport.write(_LENGTH.pack(len(raw)) + raw)
        return True

    def close(self, reason: str = "closed here") -> None:
        """Closes the connection."""
        if self._transport is not None and not self._reason:
            self._reason = reason
            transport, self._transport = self._transport, None
            transport.abort() if "message" in reason else transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._on_lost(self, self._reason or str(error or "the peer closed the connection"))
