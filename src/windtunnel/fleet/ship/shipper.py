"""The shipper of a node: finds rings as they appear, sends new records, retries when asked to, and ends with its ranks.

The node's clock, which tests of clock alignment can deliberately misadjust.

Follows a ring: finds rows that are new, open rows that have ended, and rows that the ring has overwritten.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, SpecError
from windtunnel.fleet.batch import (
    MOST_RINGS,
    MOST_ROWS,
    SUMMARIES,
    Batch,
    BatchMeta,
    BatchTable,
    RankBeat,
    Stamps,
    encode,
    identity_of,
    summarise,
    table_of_rows,
)
from windtunnel.fleet.ring import ROW, RingReader, RowState
from windtunnel.fleet.ship.post import Poster

_BACKOFF = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_FIRST_ROW_BYTES = 10.0
_EXCHANGES_KEPT = 32


@dataclass
class ShipTotals:
    """Totals of a shipper."""

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    lost: int = 0
    reduced: int = 0


class NodeShipper:
    """Ships the rings of a folder to a collector."""

    def __init__(
        self, folder: Path, url: str, policy: ShipPolicy | None = None, token: str | None = None, secrets: str | None = None
    ) -> None:
        self.folder, self.policy = folder, policy or ShipPolicy()
        if self.policy.detail not in ("full", "summary"):
            raise SpecError("detail", self.policy.detail, "full or summary")
        self.clock = node_clock()
        self.poster = Poster(url, token, self.policy.timeout, self.clock, secrets)
        self.boot, self.sequence = os.urandom(16), 0
        self.followers: list[RingFollower] = []
        self.done = ShipTotals()
        self.stop = threading.Event()
        self._seen: set[tuple[str, int]] = set()
        self._exchanges: list[Stamps] = []
        self._row_bytes, self._allowance, self._allowed_at = _FIRST_ROW_BYTES, 0.0, time.monotonic()

    def run(self) -> ShipTotals:
        """Ships until all ranks have ended and nothing is left, or until `stop` is set, and then once more."""
        try:
            self._ship_until_end()
        finally:
            for follower in self.followers:
                follower.close()
            self.poster.close()
        return self.done

    def _ship_until_end(self) -> None:
        ended = 0.0
        while True:
            last = self.stop.is_set()
            begin = time.monotonic()
            self.find_rings()
            before = self.done.rows
            delivered = self.send_batch()
            while last and delivered and self.done.rows > before:  # the rest, if one batch was too small
                before = self.done.rows
                delivered = self.send_batch()
            busy = [follower for follower in self.followers if not follower.over]
            if last or (not delivered and self.stop.is_set()):
                return
            if self._seen and not busy:
                ended = ended or begin
                if begin - ended >= self.policy.linger:
                    return
            else:
                ended = 0.0
            world = max((follower.identity.world for follower in busy), default=1)
            self.stop.wait(max(0.0, self.policy.seconds(world) - (time.monotonic() - begin)))

    def find_rings(self) -> None:
        """Follows new rings in the folder, or in subfolders of runs. A ring that was recreated under the same name is a different
        one; the old one is read to its end.
        """
        for path in sorted([*self.folder.glob("*.ring"), *self.folder.glob("*/*.ring")]):
            try:
                if (str(path), os.stat(path).st_ino) in self._seen:
                    continue
                follower = RingFollower(path, RingReader(path))
            except (FileError, OSError, ValueError, TypeError):  # not a ring, or one that is being created
                continue
            if not self._resume_follower(follower):
                follower.close()
                continue
            self._seen.add((str(path), follower.inode))
            self.followers.append(follower)

    def _resume_follower(self, follower: RingFollower) -> bool:
        """Asks how much of the ring the collector has. False if it does not answer; the ring is tried again later."""
        reply = self.poster.post("/v1/rings", json.dumps({"rings": [follower.key]}).encode())
        if reply.status != 200:
            self._refuse(reply.status)
            return False
        progress = reply.value.get("rings", {}).get(follower.key)
        if progress is not None:
            follower.resume(progress)
        return True

    def send_batch(self) -> bool:
        """Sends new records in one batch; whether the collector has it."""
        following = [follower for follower in self.followers if not follower.over or follower.has_resumed()][:MOST_RINGS]
        if not following:
            return True
        found = [follower.look(MOST_ROWS // (2 * len(following))) for follower in following]
        self.sequence += 1
        batch, rows = self._batch(following, found, introduce=False)
        raw = encode(batch)
        refused, tries, since = False, 0, time.monotonic()
        while True:
            reply = self.poster.post("/v1/batches", raw)
            if reply.status == 200:
                break
            self._refuse(reply.status)
            if reply.status == 409 and not refused:
                refused = True
                batch, rows = self._batch(following, found, introduce=True)
                raw = encode(batch)
                continue
            over = all(one.over for one in found)
            if self.stop.is_set() or (over and time.monotonic() - since > self.policy.patience):
                return False
            self.stop.wait(_BACKOFF[min(tries, len(_BACKOFF) - 1)] if not reply.status else reply.retry_after)
            tries += 1
        self._record_delivery(following, found, rows, len(raw), reply.stamps)
        return True

    def _record_delivery(
        self, following: Sequence[RingFollower], found: Sequence[RingUpdate], rows: int, size: int, stamps: Stamps | None
    ) -> None:
        if stamps is not None:
            self._exchanges = [*self._exchanges, stamps][-_EXCHANGES_KEPT:]
        if rows:
            self._row_bytes = 0.9 * self._row_bytes + 0.1 * size / rows
        before = [(follower.progress.lost, follower.progress.reduced) for follower in following]
        for follower, one in zip(following, found, strict=True):
            one.after.lines = max(one.after.lines, one.beat.lines_from + len(one.beat.lines))
            follower.confirm_sent(one)
        self.done.batches += 1
        self.done.rows += rows
        self.done.bytes += size
        for follower, (lost, reduced) in zip(following, before, strict=True):
            self.done.lost += follower.progress.lost - lost
            self.done.reduced += follower.progress.reduced - reduced

    def _batch(self, following: Sequence[RingFollower], found: Sequence[RingUpdate], *, introduce: bool) -> tuple[Batch, int]:
        """The updates as a batch, and its number of rows. `introduce`: includes identity and all text of the rings."""
        lines: dict[str, tuple[int, tuple[str, Any]]] = {}
        for follower, one in zip(following, found, strict=True):
            beat = one.beat
            known = 0 if introduce else follower.progress.lines
            beat.lines_from, beat.lines = known, []
            for line in list(follower.reader.lines())[known:]:
                text = json.dumps(line)
                beat.lines.append(lines.setdefault(text, (len(lines), line))[0])
            beat.identity = follower.identity if introduce or not follower.progress.introduced else None
        table = table_of_rows([one.numbers for one in found], [one.rows for one in found])
        rows, summaries = self._within_budget(table, found, [follower.progress.reduced for follower in following])
        open_rows = table_of_rows([one.open_numbers for one in found], [one.open_rows for one in found])
        meta = BatchMeta(
            os.uname().nodename, self.clock(), [one.beat for one in found], [line for _, line in lines.values()],
            [(one.sent, one.received, one.answered, one.back) for one in self._exchanges[-1:]],
        )  # fmt: skip
        return Batch(self.boot, self.sequence, meta, rows, open_rows, summaries), len(rows)

    def _within_budget(
        self, table: BatchTable, found: Sequence[RingUpdate], before: Sequence[int]
    ) -> tuple[BatchTable, BatchTable]:
        """The rows to send, and summaries of the rest: the newest steps that exceed the node's byte budget."""
        runs = table.runs
        rate = self.policy.bytes_per_second
        now = time.monotonic()
        self._allowance = min(self._allowance + rate * (now - self._allowed_at), 10 * rate)
        self._allowed_at = now
        fits = int(self._allowance / self._row_bytes) if rate else len(table)
        if self.policy.detail == "summary":
            fits = 0
        if not len(table) or fits >= len(table):
            self._allowance -= len(table) * self._row_bytes
            return table, BatchTable.empty(SUMMARIES, len(runs))
        step = table.columns["step"]
        last = np.sort(step)[fits]  # the first step that does not fit, and all later ones, are sent as summaries
        full = step < last
        ring = np.repeat(np.arange(len(runs)), runs)
        kept, rest = _part(table, full, ring), _part(table, ~full, ring)
        self._allowance -= len(kept) * self._row_bytes
        for one, reduced, count in zip(found, before, rest.runs.tolist(), strict=True):
            one.after.reduced = one.beat.reduced = reduced + count
        return kept, summarise(rest)

    def _refuse(self, status: int) -> None:
        """Raises for statuses that a retry cannot cure."""
        if status == 401:
            raise SpecError("--token-file", "a token that the collector does not take", "the collector's token")
        if status in (400, 404, 413):
            raise SpecError("--collector", f"status {status}", "a collector of this version of windtunnel")


def _part(table: BatchTable, chosen: Any, ring: Any) -> BatchTable:
    runs = np.bincount(ring[chosen], minlength=len(table.runs)).astype(np.int64)
    return BatchTable(runs, {name: column[chosen] for name, column in table.columns.items()})


def ship(
    folder: Path, url: str, policy: ShipPolicy | None = None, token: str | None = None, secrets: str | None = None
) -> ShipTotals:
    """Ships the rings of `folder` until their ranks have ended, or until SIGTERM or SIGINT. SpecError: wrong address or token."""
    import signal

    shipper = NodeShipper(folder, url, policy, token, secrets)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: shipper.stop.set())
    return shipper.run()


VARIABLE = "WINDTUNNEL_FLEET_CLOCK"


def node_clock() -> Callable[[], int]:
    """Unix time in ns. `WINDTUNNEL_FLEET_CLOCK=offset_ns,ppm` makes it wrong by that much; the drift counts from the host's start.

    All processes of a host with the same setting agree. SpecError if the setting is not two numbers.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return time.time_ns
    try:
        offset, ppm = (float(part) for part in text.split(","))
    except ValueError as error:
        raise SpecError(VARIABLE, text, "offset_ns,ppm", "For example 500000000,100.") from error

    def wrong() -> int:
        return time.time_ns() + int(offset) + int(time.monotonic_ns() * (ppm * 1e-6))

    return wrong


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


RANKS_A_SECOND = 2500
"""Ranks that send in each second by default: a rank of a 10,000-rank job sends every 4 s."""


@dataclass(frozen=True)
class ShipPolicy:
    """How often a node sends, and how much."""

    interval: float = 0.0
    """Seconds between batches; 0: by the job's size, 1 s up to 2,500 ranks."""
    detail: str = "full"
    """"full": every row; "summary": only counts and durations by step and section."""
    bytes_per_second: float = 0.0
    """Limit of the node; beyond it whole steps are sent as summaries; 0: no limit."""
    linger: float = 5.0
    """Seconds to wait for new rings after all ranks have ended."""
    patience: float = 30.0
    """Seconds to retry the last rows if the collector does not answer, after all ranks have ended."""
    timeout: float = 20.0
    """Timeout of one request in seconds."""

    def seconds(self, world: int) -> float:
        """Interval between two batches of a job of `world` ranks."""
        return self.interval or min(10.0, max(1.0, world / RANKS_A_SECOND))


_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "sleeping",
    "I": "sleeping",
    "T": "stopped",
    "t": "stopped",
    "Z": "zombie",
    "X": "gone",
}


class ProcessState:
    """State of a process by its id. A later process with the same id is another one, and this one is gone."""

    def __init__(self, pid: int) -> None:
        self._path = Path("/proc") / str(pid) / "stat"
        self._started = ""

    def state(self) -> str:
        """running, sleeping, stopped, zombie or gone."""
        try:
            words = self._path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            letter, started = words[0], words[19]
        except (OSError, IndexError):
            return "gone"
        self._started = self._started or started
        return _STATES.get(letter, "running") if started == self._started else "gone"
