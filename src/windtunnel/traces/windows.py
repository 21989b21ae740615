"""The steps of a rank as windows of time on its device."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s
from windtunnel.base.dataclasses import dataclass
from windtunnel.records.run import ON_DEVICE, EventKind, Events, RankTrace, Run

WHOLE = -1
"""The step of a window that covers a whole trace, where the trace names no steps."""


@dataclass(frozen=True)
class Window:
    """A step on one rank, in seconds from the trace's zero."""

    step: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def windows_of(run: Run, trace: RankTrace) -> tuple[Window, ...]:
    """The steps of a rank, by begin.

    On the device a step begins with the first event that the host launched inside the step, and ends where the next step begins
    (the last one with its last event), since the host runs ahead. A step without known launches lasts as the source says. Traces
    without steps are one window over all events of the device, or of the host where there are none.
    """
    mine = (run.steps.rank == trace.rank) & np.isfinite(run.steps.begin) & np.isfinite(run.steps.seconds)
    events = trace.events
    order = np.argsort(run.steps.begin[mine], kind="stable")
    begins, lengths = run.steps.begin[mine][order], run.steps.seconds[mine][order]
    numbers = run.steps.step[mine][order]
    device = np.isin(events.kind, ON_DEVICE)
    if not len(begins):
        return _whole_window(events, device)
    first, last = _on_device(events, device, begins)
    windows = []
    for at, number in enumerate(numbers):
        if np.isfinite(first[at]):
            following = first[at + 1] if at + 1 < len(first) and np.isfinite(first[at + 1]) else last[at]
            begin, end = float(first[at]), float(max(following, first[at]))
        else:
            begin, end = float(begins[at]), float(begins[at] + lengths[at])
        windows.append(Window(int(number), begin, end))
    return tuple(windows)


def launch_of(events: Events) -> Int32s:
    """[E] the launch of each device event by correlation; -1 where the trace has none, and for events of the host."""
    launches = np.flatnonzero(np.isin(events.kind, (EventKind.LAUNCH, EventKind.SYNC)) & (events.correlation >= 0))
    device = np.flatnonzero(np.isin(events.kind, ON_DEVICE) & (events.correlation >= 0))
    owner = np.full(len(events), -1, np.int32)
    if not len(launches):
        return owner
    order = launches[np.argsort(events.correlation[launches], kind="stable")]
    known = events.correlation[order]
    place = np.minimum(np.searchsorted(known, events.correlation[device]), len(known) - 1)
    matches = known[place] == events.correlation[device]
    owner[device[matches]] = order[place[matches]]
    return owner


def _on_device(events: Events, device: Bools, begins: Floats) -> tuple[Floats, Floats]:
    """First begin and last end on the device of what each step launched; infinite without a known launch."""
    owner = launch_of(events)
    rows = np.flatnonzero(device & (owner >= 0))
    launched = events.begin[owner[rows]]
    step = np.searchsorted(begins, launched, side="right") - 1
    first, last = np.full(len(begins), np.inf), np.full(len(begins), -np.inf)
    inside = step >= 0
    np.minimum.at(first, step[inside], events.begin[rows][inside])
    np.maximum.at(last, step[inside], (events.begin[rows] + events.seconds[rows])[inside])
    return first, last


def _whole_window(events: Events, device: Bools) -> tuple[Window, ...]:
    chosen = device if device.any() else np.ones(len(events), bool)
    if not chosen.any():
        return ()
    ends = events.begin[chosen] + events.seconds[chosen]
    return (Window(WHOLE, float(events.begin[chosen].min()), float(ends.max())),)
