"""Virtual time and connections inside one process: nothing sleeps, the event loop jumps to its next timer."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

from windtunnel.fleet.wire.channel import Channel


class _Jump(selectors.SelectSelector):
    """Waits by moving the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("nothing will ever happen any more")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs as fast as it can; `time` is what its timers say."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


class Wire(asyncio.Transport):
    """One end of a connection: what is written arrives at the other end `late` seconds later, in order."""

    def __init__(self, own: Channel) -> None:
        super().__init__()
        self.own, self.late, self.lost = own, 0.001, False
        self.other: Wire = self
        self._due = 0.0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return name

    def is_closing(self) -> bool:
        return self.lost

    def write(self, data: Any) -> None:
        loop = asyncio.get_running_loop()
        self._due = max(self._due, loop.time() + self.late)
        loop.call_at(self._due, self.other._arrive, bytes(data))

    def _arrive(self, data: bytes) -> None:
        if not self.lost:
            self.own.data_received(data)

    def close(self) -> None:
        for end in (self, self.other):
            if not end.lost:
                end.lost = True
                asyncio.get_running_loop().call_soon(end.own.connection_lost, None)

    abort = close
