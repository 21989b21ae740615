"""The communication calls of a run by kind, group and size: how often, how long, at what bus bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.comm import Comm
from windtunnel.records.run import EventKind, Run


@dataclass(frozen=True)
class CallRow:
    """Calls of one kind, group and size on all traced ranks. `bytes`: the total buffer, NaN unknown; `size`: ranks of the group,
    0 unknown; seconds of all, of the fastest and of the median; `bus`: B/s of the median call as nccl-tests defines it, NaN
    unknown.
    """

    comm: str
    group: str
    size: int
    bytes: float
    count: int
    seconds: float
    shortest: float
    median: float
    bus: float


def call_table(run: Run) -> tuple[CallRow, ...]:
    """Rows by total time. Calls of the host count only where no rank has a device."""
    kind = EventKind.CALL if any(np.any(t.events.kind == EventKind.CALL) for t in run.ranks) else EventKind.OPERATOR
    book: dict[tuple[int, str, int, float], list[float]] = {}
    for trace in run.ranks:
        events = trace.events
        rows = np.flatnonzero((events.kind == kind) & (events.comm != Comm.NONE))
        for row in rows.tolist():
            group = int(events.group[row])
            name = events.group_names[group] if 0 <= group < len(events.group_names) else ""
            size = (
                len(events.groups[group])
                if group >= 0
                else 2
                if events.comm[row] == Comm.SEND_RECV and events.peer[row] >= 0
                else 0
            )
            number = float(events.bytes[row])
            book.setdefault((int(events.comm[row]), name, size, number if number == number else -1.0), []).append(
                float(events.seconds[row])
            )
    table = [_row(*key, np.array(times)) for key, times in book.items()]
    return tuple(sorted(table, key=lambda row: -row.seconds))


def bus_factor(comm: Comm, size: int) -> float:
    """What nccl-tests multiplies the algorithm bandwidth with (its PERFORMANCE.md); NaN for a group of unknown size."""
    if comm in (Comm.BROADCAST, Comm.REDUCE, Comm.SEND_RECV):
        return 1.0
    if size < 1:
        return float("nan")
    return (2.0 if comm is Comm.ALL_REDUCE else 1.0) * (size - 1) / size


def _row(comm: int, group: str, size: int, number: float, times: Floats) -> CallRow:
    median = float(np.median(times))
    known = number if number >= 0 else float("nan")
    bus = known / median * bus_factor(Comm(comm), size) if median > 0 else float("nan")
    return CallRow(Comm(comm).name.lower(), group, size, known, len(times), float(times.sum()), float(times.min()), median, bus)
