"""A rank's ring: a memory-mapped file of its most recent records. The kernel keeps it when the process is killed.

The file has a header page, a text area (names, groups and facts, one JSON line each, append-only) and rows of 64 bytes. Row number
n of the run is in slot n mod capacity. A row is written as open when its section begins and rewritten when it ends, so a hang shows
what the rank was doing. The head counter is advanced after the row is written: a reader sees only complete rows and discards those
that the writer has overwritten in the meantime.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.units import show_size
from windtunnel.fleet._ring import Rows
from windtunnel.fleet.starting import waited_for_core

MAGIC = b"WTRING01"
HEADER_BYTES = 4096
TEXT_BYTES = 1 << 20
ROWS = 1 << 16
"""Default capacity: 4 MiB, some 1,000 steps of 64 records."""


class RowState(IntEnum):
    """Progress of a row's section."""

    EMPTY = 0
    OPEN = 1  # the host is in it
    ISSUED = 2  # the host has left it, the device may not have
    DONE = 3


ROW = np.dtype([
    ("begin", "<i8"),  # ns, unix time of the host's clock
    ("nanos", "<i8"),  # on the device, or of the process on a CPU; -1 not known yet
    ("host_nanos", "<i8"),  # from begin to end on the host; -1 still open
    ("bytes", "<i8"),  # of a call; -1 unknown
    ("call", "<i8"),  # number in its group; -1 none
    ("step", "<i4"),
    ("peer", "<i4"),  # -1 none
    ("name", "<i2"),  # number of the text line of kind "name"; -1 none
    ("group", "<i2"),  # number of the text line of kind "group"; -1 none
    ("micro_batch", "<i2"),  # -1 unknown
    ("section", "u1"),  # records.sections.Section
    ("comm", "u1"),  # base.comm.Comm
    ("state", "u1"),  # RowState
    ("sends", "u1"),
    ("stamp", "<u4"),  # low 32 bits of the row's number; another value means that the slot was overwritten
    ("spare", "V2"),
])  # fmt: skip
"""One record, 64 bytes, little-endian."""

PACK = struct.Struct("<qqqqqiihhhBBBBI2x")
assert PACK.size == ROW.itemsize == 64

_ROWS_AT = HEADER_BYTES + TEXT_BYTES

# Offsets of the header. Each counter is one aligned 8-byte word, written by one process only.
_MAGIC, _META, _META_BYTES = 0, 256, HEADER_BYTES - 256
HEAD, TEXT_USED, BEAT, STEP, ENDED, DROPPED, WAITED = 64, 72, 80, 88, 96, 104, 112
_WORD = struct.Struct("<q")


@dataclass(frozen=True)
class RingMeta:
    """Identity of the process that writes a ring."""

    run: str
    rank: int
    world: int
    local_rank: int
    host: str
    pid: int
    device: str
    """"cpu" or the GPU's name."""
    offset_ns: int
    """Unix time minus monotonic time of this host when the ring was created."""
    capacity: int
    facts: Mapping[str, Any] = field(default_factory=dict)


class RingWriter:
    """The only writer of a ring; its threads may write concurrently.

    Times are unix time in ns, advanced by the monotonic clock, so that adjustments of the system clock have no effect. `skew` (ns,
    parts per million) deliberately misadjusts the clock, for tests of clock alignment. `rows` is the compiled row writer
    (`_ring.Rows`), which hooks in the training process call directly. The whole file is reserved at the start: a first write to a
    page that the file system has no room for would end the process with SIGBUS. FileError if the folder cannot be written or has
    no room.
    """

    def __init__(
        self, path: Path, run: str, rank: int, world: int, local_rank: int = 0, *,
        device: str = "cpu", host: str = "", rows: int = ROWS, facts: Mapping[str, Any] | None = None,
        skew: tuple[int, float] = (0, 0.0),
    ) -> None:  # fmt: skip
        self.path = path
        self.capacity = rows
        size = HEADER_BYTES + TEXT_BYTES + rows * PACK.size
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            allowed = f"a folder that can be written, with room for {show_size(size)}"
            raise FileError(str(path), error.strerror or str(error), allowed) from error
        self.rows = Rows(self._map, _ROWS_AT, HEAD, STEP, DROPPED, skew[0], skew[1] * 1e-6)
        self.clock = self.rows.now
        self.meta = RingMeta(
            run, rank, world, local_rank, host or socket.gethostname(), os.getpid(), device,
            self.clock() - time.monotonic_ns(), rows, dict(facts or {}),
        )  # fmt: skip
        text = json.dumps(self.meta.__dict__, separators=(",", ":")).encode()
        if len(text) >= _META_BYTES:
            raise FileError(str(path), "facts of more than 3 KiB", "fewer facts of the run")
        self._map[_META : _META + len(text)] = text
        self._lock = threading.RLock()  # re-entrant: a signal handler may interrupt a write with another
        self._text_used = 0
        self._lines: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        self.beat()
        self._map[_MAGIC : _MAGIC + 8] = MAGIC  # written last, so that a reader rejects an incomplete ring

    def write(
        self, section: int, step: int, begin: int, nanos: int = -1, host_nanos: int = -1, *, state: int = RowState.OPEN,
        name: int = -1, comm: int = 0, size: int = -1, group: int = -1, call: int = -1, peer: int = -1, sends: int = 0,
        micro_batch: int = -1,
    ) -> int:  # fmt: skip
        """Appends a row and returns its number, for `rewrite`. Times in ns."""
        return self.rows.write(
            section, step, begin, nanos, host_nanos, state, name, comm, size, group, call, peer, bool(sends), micro_batch
        )

    def rewrite(self, number: int, nanos: int, host_nanos: int, state: int) -> None:
        """Updates row `number`; no effect if it has been overwritten."""
        self.rows.rewrite(number, nanos, host_nanos, state)

    def drop(self, count: int = 1) -> None:
        """Counts rows that were not written."""
        self.rows.drop(count)

    def beat(self) -> None:
        """Writes the heartbeat time, and how long the process had waited for a core until then."""
        _WORD.pack_into(self._map, WAITED, waited_for_core(self.meta.pid))
        _WORD.pack_into(self._map, BEAT, self.clock())

    def at_step(self, step: int) -> None:
        """Sets the current step of the rank."""
        self.rows.at_step(step)

    def mark_ended(self, code: int = 0) -> None:
        """Records that the process ended on its own, so that its later silence is not reported as a hang."""
        _WORD.pack_into(self._map, ENDED, code + 1)

    def mark_resumed(self) -> None:
        """Clears the end mark: the job continues."""
        _WORD.pack_into(self._map, ENDED, 0)

    def text(self, kind: str, value: object) -> int:
        """Returns the number of a line of `kind` ("name", "group", "mesh", "fact"); appends the line if it is new. -1 if the text
        area is full.
        """
        line = json.dumps(value, separators=(",", ":"))
        with self._lock:
            known = self._lines.get((kind, line))
            return self._append(kind, line) if known is None else known

    def _append(self, kind: str, line: str) -> int:
        raw = f'["{kind}",{line}]\n'.encode()
        if self._text_used + len(raw) > TEXT_BYTES:
            return -1
        start = HEADER_BYTES + self._text_used
        self._map[start : start + len(raw)] = raw
        self._text_used += len(raw)
        _WORD.pack_into(self._map, TEXT_USED, self._text_used)
        self._lines[kind, line] = number = self._counts.get(kind, 0)
        self._counts[kind] = number + 1
        return number

    def close(self) -> None:
        """Unmaps the file and leaves it on disk."""
        self.rows.release()
        self._map.close()


def append_end(path: Path, section: int, line: str) -> None:
    """Appends a row of `section` with the name `line` to the ring of a process that has ended, now. FileError if it is no ring."""
    reader = RingReader(path)
    known = [value for kind, value in reader.lines() if kind == "name"]
    size, used, head, step = reader.meta.capacity, reader._word(TEXT_USED), reader.head(), reader._word(STEP)
    now = time.monotonic_ns() + reader.meta.offset_ns
    reader.close()
    raw = f'["name",{json.dumps(line)}]\n'.encode()
    try:
        with path.open("r+b", buffering=0) as file:  # no map: a page without room would end this process, a launcher
            name = len(known) if used + len(raw) <= TEXT_BYTES else -1
            if name >= 0:
                os.pwrite(file.fileno(), raw, HEADER_BYTES + used)
                os.pwrite(file.fileno(), _WORD.pack(used + len(raw)), TEXT_USED)
            row = (now, 0, 0, -1, -1, step, -1, name, -1, -1, section, 0, RowState.DONE, 0, head & 0xFFFFFFFF)
            os.pwrite(file.fileno(), PACK.pack(*row), _ROWS_AT + head % size * PACK.size)
            os.pwrite(file.fileno(), _WORD.pack(head + 1), HEAD)
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a ring that can be written") from error


@dataclass(frozen=True)
class RingTail:
    """Result of a read: complete rows `first … first + len(rows) - 1`, of which `lost` before `first` had been overwritten."""

    first: int
    rows: Any
    """[n] of ROW."""
    lost: int
    beat_ns: int
    """Unix ns of the last heartbeat; later by what the process, if it is on this machine, has waited for a core since."""
    step: int
    ended: int | None
    """Exit code that the process reported, if it ended on its own."""
    dropped: int = 0
    """Total rows that the writer skipped because a step had too many."""


class RingReader:
    """Reads a ring while its writer runs, or afterwards. FileError for a file that is not a ring."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise FileError(str(path), str(error), "a ring of `windtunnel fleet`") from error
        if self._map[:8] != MAGIC:
            raise FileError(str(path), "no ring, or one that is being made", "a ring of `windtunnel fleet`")
        try:
            self.meta = RingMeta(**json.loads(bytes(self._map[_META:HEADER_BYTES]).rstrip(b"\0")))
        except (ValueError, TypeError) as error:
            self._map.close()
            raise FileError(str(path), "a damaged ring, or one of another version", "a ring of `windtunnel fleet`") from error
        self._text_read = 0
        self._lines: list[tuple[str, Any]] = []

    def read(self, start: int) -> RingTail:
        """Rows from number `start` to the head. Open rows are returned as they are; read again from their number to get their final
        state.
        """
        head = self._word(HEAD)
        first = max(start, head - self.meta.capacity, 0)
        rows = self._rows(first, head)
        now = self._word(HEAD)
        overtaken = max(0, now - self.meta.capacity - first)
        rows, first = rows[overtaken:], first + overtaken
        fits = rows["stamp"] == (np.arange(first, first + len(rows)) & 0xFFFFFFFF)
        if not fits.all():
            keep = len(fits) - int(np.argmin(fits[::-1]))
            rows, first = rows[keep:], first + keep
        ended = self._word(ENDED)
        return RingTail(
            first, rows, first - min(start, first), self._heard(), self._word(STEP), ended - 1 if ended else None,
            self._word(DROPPED),
        )  # fmt: skip

    def _heard(self) -> int:
        """A process that other work keeps from its core beats late, and hangs no more than they."""
        beat, before = self._word(BEAT), self._word(WAITED)
        waited = waited_for_core(self.meta.pid) if before and self.meta.host == socket.gethostname() else 0
        return beat + max(0, waited - before) if waited else beat

    def head(self) -> int:
        """Number of rows written so far."""
        return self._word(HEAD)

    def rows_at(self, numbers: Any) -> tuple[Any, Any]:
        """Rows by number, and a mask of those that are intact; the others were overwritten."""
        area = np.frombuffer(self._map, ROW, self.meta.capacity, HEADER_BYTES + TEXT_BYTES)
        rows = area[numbers % self.meta.capacity]  # a copy
        del area
        return rows, (rows["stamp"] == (numbers & 0xFFFFFFFF)) & (numbers > self._word(HEAD) - self.meta.capacity)

    def lines(self) -> Sequence[tuple[str, Any]]:
        """All lines of the text area so far: (kind, value)."""
        used = self._word(TEXT_USED)
        if used > self._text_read:
            raw = bytes(self._map[HEADER_BYTES + self._text_read : HEADER_BYTES + used])
            self._lines += [(kind, value) for kind, value in map(json.loads, raw.splitlines())]
            self._text_read = used
        return self._lines

    def close(self) -> None:
        """Unmaps the file."""
        self._map.close()

    def _rows(self, first: int, head: int) -> Any:
        capacity = self.meta.capacity
        area = np.frombuffer(self._map, ROW, capacity, _ROWS_AT)
        rows = area[np.arange(first, head) % capacity]  # a copy
        del area
        return rows

    def _word(self, offset: int) -> int:
        return int(_WORD.unpack_from(self._map, offset)[0])
