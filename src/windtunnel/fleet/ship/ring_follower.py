"""Follows a ring: finds rows that are new, open rows that have ended, and rows that the ring has overwritten."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.fleet.batch.meta import RankBeat, identity_of
from windtunnel.fleet.ring import ROW, RingReader, RowState
from windtunnel.fleet.ship.process_state import ProcessState

MOST_WAITING = 2048
"""Rows of a ring that may wait for their end; beyond this the oldest count as lost."""
_OPEN_SHOWN, _ISSUED_SHOWN = 8, 4


@dataclass
class Progress:
    """How much of a ring was sent; changes when the collector has confirmed it."""

    next: int = 0
    waiting: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    lost: int = 0
    reduced: int = 0
    lines: int = 0
    introduced: bool = False


@dataclass
class RingUpdate:
    """What one look at a ring found, and the progress after it has been sent."""

    numbers: Int64s
    """Numbers of completed rows."""
    rows: Any
    """[n] of ROW."""
    open_numbers: Int64s
    open_rows: Any
    beat: RankBeat
    after: Progress
    over: bool
    """True: the ring will not change any more."""


class RingFollower:
    """Reads one ring. `look` changes nothing; `confirm_sent` advances the progress."""

    def __init__(self, path: Path, reader: RingReader) -> None:
        self.path, self.reader = path, reader
        self.inode = os.stat(path).st_ino
        self.identity = identity_of(reader.meta)
        self.key = self.identity.key()
        self.process = ProcessState(reader.meta.pid)
        self.progress = Progress()
        self.over = False
        self._ended = False  # at the last look
        self._doubtful: Int64s = np.zeros(0, np.int64)

    def resume(self, progress: dict[str, Any]) -> None:
        """Continues from the progress that the collector reported."""
        self.progress = Progress(
            int(progress["next"]),
            np.array(progress["waiting"], np.int64),
            int(progress.get("lost", 0)),
            int(progress.get("reduced", 0)),
        )

    def look(self, most: int) -> RingUpdate:
        """New rows, up to `most`, and rows that have ended since the last look."""
        state = self.process.state()  # read before the ring: a process that is gone writes nothing more
        now = self.progress
        tail = self.reader.read(now.next)
        rows, numbers = tail.rows[:most], np.arange(tail.first, tail.first + len(tail.rows[:most]))
        cut = len(tail.rows) > most
        lost = now.lost + max(0, tail.first - now.next)
        old, whole = self.reader.rows_at(now.waiting) if len(now.waiting) else (np.zeros(0, ROW), np.zeros(0, bool))
        lost += int((~whole).sum())
        numbers = np.concatenate([now.waiting[whole], numbers])
        rows = np.concatenate([old[whole], rows])
        # A row read while it is being rewritten may be DONE without its times: it is accepted when it is read so again.
        doubt = (rows["state"] == RowState.DONE) & (rows["nanos"] < 0)
        done = (rows["state"] == RowState.DONE) & ~(doubt & ~np.isin(numbers, self._doubtful))
        self._doubtful = numbers[doubt]
        waiting = numbers[~done]
        lost += max(0, len(waiting) - MOST_WAITING)
        ended = tail.ended is not None or state in ("gone", "zombie")
        # A launcher that learns of the end of its child may still write how it ended: the ring is read once more.
        over = ended and self._ended and not cut and not (doubt & ~done).any()
        self._ended = ended
        after = Progress(
            max(now.next, tail.first + min(most, len(tail.rows))), waiting[-MOST_WAITING:], lost, now.reduced, now.lines, True
        )
        shown = _rows_to_show(rows, ~done)
        beat = RankBeat(
            self.key, after.next if cut else tail.first + len(tail.rows), tail.step, tail.beat_ns, state, tail.ended, after.next,
            after.waiting.tolist(), lost + tail.dropped, now.reduced,
        )  # fmt: skip
        return RingUpdate(numbers[done], rows[done], numbers[shown], rows[shown], beat, after, over)

    def confirm_sent(self, found: RingUpdate) -> None:
        """Advances the progress: the collector has this update."""
        self.progress, self.over = found.after, found.over

    def has_resumed(self) -> bool:
        """Whether a ring that had ended continues, because its process has started the monitor again."""
        return self.over and self.reader.read(1 << 62).ended is None and self.process.state() not in ("gone", "zombie")

    def close(self) -> None:
        self.reader.close()


def _rows_to_show(rows: Any, open_now: Any) -> Any:
    """Rows that describe what the rank is doing: the newest that the host is in, and the oldest that the device is in."""
    inside = np.flatnonzero(open_now & (rows["state"] == RowState.OPEN))[-_OPEN_SHOWN:]
    issued = np.flatnonzero(open_now & (rows["state"] == RowState.ISSUED))[:_ISSUED_SHOWN]
    return np.concatenate([inside, issued])
