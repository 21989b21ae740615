"""What a collected run answers with: heartbeats, open sections, summaries of steps. Plain records, whoever answers: the collector's
folder (`collect.store`) or the collector itself (`asked`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from windtunnel.base.arrays import Floats, Int32s, Int64s, Uint8s

IdSelection = range | Collection[int] | None
"""Steps or ranks: None stands for all."""


@dataclass(frozen=True)
class StepSummaries:
    """Rows counted by rank, step and section, N groups. Seconds on the device; rows whose time is unknown are not counted."""

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
    """What a rank was in when it last spoke. `begin` in unix seconds of its host's clock."""

    section: str
    name: str
    group: str
    step: int
    begin: float
    call: int
    peer: int
    state: int  # ring.RowState: OPEN, the host is in it; ISSUED, the device is


@dataclass(frozen=True)
class Heartbeat:
    """The last words of a rank's ring. Times in unix seconds: `beat` on its host's clock, `received` on the collector's."""

    rank: int
    host: str
    run: str
    pid: int
    ring: str
    step: int
    head: int
    beat: float
    received: float
    process: str
    ended: int | None
    lost: int
    reduced: int
    open: tuple[OpenSection, ...]
