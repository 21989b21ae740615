"""The collector of one run: recovers its folder, accepts batches, compacts the log in a thread."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import head_of
from windtunnel.fleet.batch.message import decode_meta
from windtunnel.fleet.collect.compact import Compactor
from windtunnel.fleet.collect.decode import read_segment_meta
from windtunnel.fleet.collect.index import RunIndex, default_url
from windtunnel.fleet.collect.log import BatchLog, map_file, segment_path, segments, truncate_torn_end
from windtunnel.fleet.collect.metrics import CollectorMetrics
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.collect.retention import drop_expired
from windtunnel.fleet.collect.spans import SpanExporter

LOG = logging.getLogger("windtunnel.fleet.collect")
_NICE = 5


@dataclass(frozen=True)
class Receipt:
    """Result of a batch: HTTP status, rings that the collector does not know (409), seconds to wait (429, 503)."""

    status: int
    unknown: Sequence[str] = ()
    retry_after: float = 0.0
    reason: str = ""


class Collector:
    """Collects into a folder; a lock file excludes a second collector (FileError). Must be used from one event loop."""

    def __init__(
        self, folder: Path, db: str | None = None, policy: CollectPolicy | None = None, otlp: str | None = None,
        otlp_ranks: Sequence[int] = (0,),
    ) -> None:  # fmt: skip
        self.folder, self.policy = folder, policy or CollectPolicy()
        for part in (folder, folder / "log", folder / "data"):
            try:
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(str(part), error.strerror or str(error), "a folder that can be written") from error
        self._lock = _lock_folder(folder / "lock")
        self.index = RunIndex(db or default_url(folder), create=True)
        state = self.index.read()
        self.rings, self.failures = state.rings, 0
        left = self._recover(state.compacted)
        self.spans = SpanExporter(otlp, otlp_ranks, self.rings) if otlp else None
        self.compactor = Compactor(folder, self.index, self.rings, self.spans.offer if self.spans else None)
        self._sealed: queue.Queue[int | None] = queue.Queue()
        self._closing = threading.Event()
        self._backlog: dict[int, int] = {}
        for number in left:
            self._seal(number)
        self.log = BatchLog(
            folder / "log", max([state.compacted, *left]) + 1, self._seal, self.policy.segment_bytes, self.policy.segment_seconds
        )
        self.metrics = CollectorMetrics(self)
        self._thread = threading.Thread(target=self._compact_loop, name="compaction", daemon=True)
        self._thread.start()

    def _recover(self, compacted: int) -> list[int]:
        """Reads the part of the log that is not in the index; returns its segments. Segments that are in the index are deleted."""
        left = []
        for number in segments(self.folder / "log"):
            path = segment_path(self.folder / "log", number)
            if number <= compacted:
                path.unlink()
                continue
            cut = truncate_torn_end(path)
            if cut:
                LOG.warning("%s: cut %d bytes of an unfinished batch", path.name, cut)
            words = read_segment_meta(map_file(path), self.rings, take=True)
            for boot, sequence in words.boots.items():
                self.rings.sequences[boot] = max(sequence, self.rings.sequences.get(boot, 0))
            left.append(number)
        return left

    async def take(self, body: bytes, received_ns: int) -> Receipt:
        """Accepts a batch of a node; returns when it is durable, or refused."""
        if self.log.pending_bytes > self.policy.pending_bytes:
            return self._refuse(503, 1.0, "too much waits for the disk")
        if self.backlog_bytes() > self.policy.backlog_bytes:
            return self._refuse(429, 2.0, "too much waits for compaction")
        try:
            head = head_of(body)
            meta = decode_meta(body, head)
        except FileError as error:
            self.metrics.refused.labels("400").inc()
            return Receipt(400, reason=str(error))
        before = self.rings.sequences.get(head.boot, 0)
        undo = None
        if head.sequence <= before:
            self.metrics.duplicates.inc()
            body = b""
        else:
            unknown = self.rings.unknown_rings(meta)
            if unknown:
                self.metrics.refused.labels("409").inc()
                return Receipt(409, unknown)
            self.rings.take(meta, received_ns)
            self.rings.sequences[head.boot] = head.sequence

            def undo() -> None:
                self.rings.sequences[head.boot] = before

        try:
            await self.log.append(body, received_ns, undo)
        except OSError as error:
            LOG.error("log: %s", error)
            return self._refuse(503, 5.0, f"the disk: {error.strerror}")
        if body:
            self.metrics.batches.inc()
            self.metrics.bytes.inc(len(body))
        return Receipt(200)

    def _refuse(self, status: int, after: float, reason: str) -> Receipt:
        self.metrics.refused.labels(str(status)).inc()
        return Receipt(status, retry_after=after, reason=reason)

    def backlog_bytes(self) -> int:
        """Bytes of closed segments that wait for compaction."""
        return sum(list(self._backlog.values()))

    def _seal(self, number: int) -> None:
        self._backlog[number] = segment_path(self.folder / "log", number).stat().st_size
        self._sealed.put(number)

    def _compact_loop(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # of this thread only, on Linux
        looked = 0.0
        while (number := self._sealed.get()) is not None and not self._closing.is_set():
            while True:
                try:
                    self.compactor.compact(number)
                    break
                except (
                    Exception
                ) as error:  # any error: the segment stays and is retried, because acknowledged data is never dropped
                    self.failures += 1
                    LOG.error("compaction of segment %d: %s", number, error)
                    if self._closing.wait(min(self.policy.retry_seconds, 2.0 ** min(self.failures, 16))):
                        return
            self._backlog.pop(number, None)
            if time.monotonic() - looked > self.policy.retention_seconds:
                looked = time.monotonic()
                drop_expired(self.folder, self.index, self.policy, time.time())

    async def tick(self) -> None:
        """Closes a segment whose time limit has passed. Call it about once a second."""
        await self.log.seal_if_old(time.time())

    def close(self) -> None:
        """Stops the threads, and waits for each for at most `policy.close_seconds`. The log is left as it is; the next start
        continues from it, and from a compaction that was left unfinished.
        """
        self._closing.set()
        self._sealed.put(None)
        self._thread.join(self.policy.close_seconds)
        if self._thread.is_alive():
            LOG.warning("the compaction of a segment is left unfinished; the next start repeats it")
        self.log.close(self.policy.close_seconds)
        if self.spans is not None:
            self.spans.close(self.policy.close_seconds)
        if not self._thread.is_alive():
            self.index.close()
        os.close(self._lock)


def _lock_folder(path: Path) -> int:
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise FileError(str(path), "a collector that runs", "one collector a folder", "End it, or name another --dir.") from error
    return file
