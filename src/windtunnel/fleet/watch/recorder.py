"""Hot path of the monitor: opens and closes rows of the ring. On a CPU its functions are those of the compiled writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windtunnel.fleet.ring import RingWriter
from windtunnel.fleet.watch.settings import WatchSettings
from windtunnel.records.sections import NO_CORE, Section

_STEP = int(Section.STEP)

Mark = int
"""Number of an open row."""


class Recorder:
    """Writes a rank's rows. `events` (device.DeviceEvents) times what runs on a GPU; None: the host clock is used.

    Look up `open`, `open_call`, `close` and `next_step` at each call, because `use_device` replaces them. `live` is False after the
    monitor has stopped: wrappers that could not be removed then only pass calls on.
    """

    def __init__(self, ring: RingWriter, settings: WatchSettings) -> None:
        self.ring, self.rows = ring, ring.rows
        self.events: Any = None
        self.live = True
        self.micro_batch = -1  # set by the user or a framework; -1: micro batches are counted
        self.rows.every = settings.call_interval()
        self.rows.rows_a_step = self.rows.left = settings.rows_a_step
        self.gap_ns = settings.gap_ns
        self._names: dict[str, int] = {}
        self.rows.live, self.rows.calls = True, self.rows.every > 0
        self.now: Callable[[], int] = self.rows.now
        self.open: Callable[..., Mark] = self.rows.open
        self.open_call: Callable[..., Mark | None] = self.rows.open_call
        self.close: Callable[[Mark], None] = self.rows.close
        self.mark_issued: Callable[[Mark], None] = self.rows.issued
        self.next_step: Callable[..., Mark] = self.rows.next_step  # ends the step of an open row and begins the next one
        # Time that the thread waited for a core during its own work: caused by the machine, not the rank.
        first, last = int(Section.FORWARD), int(Section.OPTIMIZER)
        self.rows.watch_cores(first, last, int(Section.HOST_GAP), self.name(NO_CORE), max(settings.gap_ns, 1))

    @property
    def step(self) -> int:
        """Number of the current step."""
        return self.rows.step

    @property
    def calls(self) -> bool:
        """Whether calls of this step are recorded."""
        return self.rows.calls

    def use_device(self, events: Any) -> None:
        """Times everything opened from now on by events on the streams."""
        self.events = events
        self.open, self.open_call, self.close = self._open_on_device, self._open_call_on_device, self._close_on_device
        self.next_step = self._next_step_on_device

    def stop(self) -> None:
        """Stops recording."""
        self.live = self.rows.live = False

    def name(self, text: str) -> int:
        """Number of a name."""
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = self.ring.text("name", text)
        return number

    def open_range(self, section: int, name: int) -> Mark | None:
        """Opens a range with a name; None if the step has too many rows."""
        if not self.live:
            return None
        if self.rows.left <= 0:
            self.ring.drop()
            return None
        return self.open(section, name)

    def write_ended(self, section: int, name: int, began: int, nanos: int) -> None:
        """Writes a host section that has already ended."""
        self.rows.past(section, name, began, nanos)

    def _next_step_on_device(self, open_row: Mark = -1) -> Mark:
        if open_row >= 0:
            self.close(open_row)
        self.rows.begin_step()
        return self.open(_STEP)

    def _open_on_device(self, section: int, name: int = -1, micro_batch: int = -1) -> Mark:
        row = self.rows.open(section, name, micro_batch)
        self.events.begin(row)
        return row

    def _open_call_on_device(self, *call: Any) -> Mark | None:
        row = self.rows.open_call(*call)
        if row is not None:
            self.events.begin(row)
        return row

    def _close_on_device(self, row: Mark) -> None:
        """The section ends on the device when the event recorded here completes. A section that was opened before there was a
        device ends now.
        """
        self.rows.issued(row)
        if not self.events.end(row, self.rows.begin_of(row)):
            self.rows.close(row)
