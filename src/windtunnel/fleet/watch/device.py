"""Times on a GPU: CUDA events from a pool, read after they have completed. Nothing here waits for the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from windtunnel.fleet.ring import RingWriter

_PENDING = 1 << 14
"""Sections whose end event has not completed: beyond this number the oldest keeps only its host time, and is counted."""

_RENEW_MS = 10_000.0
"""Age of the reference event: times between events are 32-bit floats of ms, wrong by about 0.6 µs at this distance."""


class DeviceEvents:
    """Times sections by pairs of events on the current stream. A reference event relates the device's time to unix time.

    No event is waited for, so the reference is corrected by what must hold: a section begins on the device after the host issued
    it, and has ended when its event is seen to be complete. `cuda` is torch.cuda, or a substitute in tests.
    """

    def __init__(self, ring: RingWriter, cuda: Any, now: Callable[[], int] | None = None) -> None:
        self._ring, self._now, self._cuda = ring, now or ring.clock, cuda
        self._begun: dict[int, Any] = {}  # row -> the event that began it
        self._pool: list[Any] = []
        self._pending: deque[tuple[int, int, Any, Any]] = deque()
        self._anchor = self._take()
        self._anchor.record()
        self._anchor_ns = self._now()
        self._anchored = False

    def begin(self, row: int) -> None:
        """Records the begin of row `row` on the current stream."""
        event = self._begun[row] = self._take()
        event.record()
        if len(self._begun) > _PENDING:  # sections that never ended
            self._pool.append(self._begun.pop(next(iter(self._begun))))

    def end(self, row: int, host_began: int) -> bool:
        """Records the end of row `row`. False if its begin was not recorded on the device."""
        began = self._begun.pop(row, None)
        if began is None:
            return False
        ended = self._take()
        ended.record()
        self._pending.append((row, host_began, began, ended))
        if len(self._pending) > _PENDING:
            self._pending.popleft()  # its events may still be pending, so they are not reused
            self._ring.drop()
        return True

    def poll(self) -> None:
        """Writes the times of the sections whose end event has completed. Streams differ: a late section does not delay the
        others.
        """
        if not self._anchored:
            self._anchored = bool(self._anchor.query())
            if not self._anchored:
                return
        late: list[tuple[int, int, Any, Any]] = []
        while self._pending and len(late) < 64:
            item = self._pending.popleft()
            if item[3].query() and item[2].query():
                self._settle(*item)
            else:
                late.append(item)
        self._pending.extendleft(reversed(late))

    def _take(self) -> Any:
        return self._pool.pop() if self._pool else self._cuda.Event(enable_timing=True)

    def _settle(self, row: int, host_began: int, began: Any, ended: Any) -> None:
        milliseconds = float(self._anchor.elapsed_time(began))
        begin = self._anchor_ns + int(milliseconds * 1e6)
        nanos = max(0, int(float(began.elapsed_time(ended)) * 1e6))
        correction = max(0, host_began - begin) or min(0, self._now() - begin - nanos)
        if correction:
            self._anchor_ns += correction
            begin += correction
        self._ring.rows.settle(row, begin, nanos)
        self._pool.append(ended)
        if milliseconds > _RENEW_MS:
            self._pool.append(self._anchor)
            self._anchor, self._anchor_ns = began, begin
        else:
            self._pool.append(began)
