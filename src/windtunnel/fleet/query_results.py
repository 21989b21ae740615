"""Records that queries of a collected run return: heartbeats, open sections, step summaries. The collector's folder
(`collect.store`) and the HTTP client (`collector_client`) return the same types.
"""

from __future__ import annotations

from collections.abc import Collection

from windtunnel.base.arrays import Floats, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass

IdSelection = range | Collection[int] | None
"""Steps or ranks to select; None selects all."""


@dataclass(frozen=True)
class StepSummaries:
    """Sections aggregated by rank, step and section type; N rows. Seconds on the device. Sections without a known duration are not
    counted.
    """

    rank: Int32s
    step: Int64s
    section: Uint8s
    count: Int64s
    sum: Floats
    least: Floats
    most: Floats

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True)
class OpenSection:
    """A section that a rank had entered and not left at its last heartbeat."""

    section: str
    name: str
    group: str
    step: int
    begin: float
    """Unix seconds on the rank's host clock."""
    call: int
    peer: int
    state: int
    """`ring.RowState`: OPEN, the host is inside it; ISSUED, the device has not finished it."""


@dataclass(frozen=True)
class Heartbeat:
    """The last state of a rank's ring that reached the collector."""

    rank: int
    host: str
    run: str
    pid: int
    ring: str
    step: int
    head: int
    beat: float
    """Unix seconds on the rank's host clock."""
    received: float
    """Unix seconds on the collector's clock."""
    process: str
    ended: int | None
    lost: int
    reduced: int
    open: tuple[OpenSection, ...]
