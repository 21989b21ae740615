"""The collector of one run: recovers its folder, accepts batches, compacts the log in a thread.

Retention of files: the oldest sections beyond their age or total bytes, and summaries beyond their age, are deleted.

Prometheus metrics of the collector, and of the job that it watches.

Prometheus metrics of the job that a collector watches.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import decode_meta, head_of
from windtunnel.fleet.collect.compact import Compactor, dead_letters, read_segment_meta
from windtunnel.fleet.collect.index import RunFile, RunIndex, default_url
from windtunnel.fleet.collect.log import BatchLog, map_file, segment_path, segments, truncate_torn_end
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.collect.registry import Rings
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


def expired_files(files: Sequence[RunFile], ages: Sequence[float], policy: CollectPolicy) -> list[RunFile]:
    """Files to delete. `ages`: seconds since each was written. The newest file of sections is always kept."""
    gone = [
        file for file, age in zip(files, ages, strict=True)
        if age > (policy.raw_seconds if file.kind == "sections" else policy.summary_seconds)
    ]  # fmt: skip
    raw = sorted((file for file in files if file.kind == "sections"), key=lambda file: file.segment, reverse=True)
    total = 0
    for file in raw:
        total += file.bytes
        if total > policy.raw_bytes and file not in gone:
            gone.append(file)
    return [file for file in gone if not raw or file != raw[0]]


def drop_expired(folder: Path, index: RunIndex, policy: CollectPolicy, now: float) -> int:
    """Deletes expired files, from the index first; returns their number."""
    files = index.files()
    ages = []
    for file in files:
        try:
            ages.append(now - (folder / file.path).stat().st_mtime)
        except FileNotFoundError:
            ages.append(float("inf"))
    gone = expired_files(files, ages, policy)
    index.remove_files([file.path for file in gone])
    for file in gone:
        (folder / file.path).unlink(missing_ok=True)
    return len(gone)


class CollectorState(Protocol):
    """What the gauges are read from: a `Collector`."""

    folder: Path
    rings: Rings
    log: BatchLog
    compactor: Compactor
    spans: SpanExporter | None
    failures: int

    def backlog_bytes(self) -> int: ...


class CollectorMetrics:
    """Counters that the ingest increments, and gauges that are read from the collector on each scrape."""

    def __init__(self, collector: CollectorState) -> None:
        self._collector = collector
        self.job: dict[str, Any] | None = None
        """Figures of the job, as `job_figures` returns them."""
        self._registry = CollectorRegistry()
        self._registry.register(self)  # any object with a method `collect` works
        self.batches = self._counter("batches", "Batches that are durable")
        self.bytes = self._counter("bytes", "Bytes of durable batches")
        self.duplicates = self._counter("duplicates", "Batches that came again and were acknowledged only")
        self.refused = self._counter("refused", "Batches refused, by status", ["status"])

    def _counter(self, name: str, text: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"windtunnel_collector_{name}", text, labels or [], registry=self._registry)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Any]:
        """Current values of the gauges."""
        now, it = time.time(), self._collector
        rings = list(it.rings.by_key.values())
        values = {
            "log_groups": (it.log.groups, "Groups of batches that were synchronised together"),
            "pending_bytes": (it.log.pending_bytes, "Bytes received and not yet durable"),
            "backlog_bytes": (it.backlog_bytes(), "Bytes of the log that are not yet compacted"),
            "compacted_rows": (it.compactor.rows, "Rows compacted since start"),
            "compaction_failures": (it.failures, "Compactions that failed and are repeated"),
            "dead_letters": (dead_letters(it.folder), "Acknowledged batches that cannot be read, kept in the folder dead"),
            "rings": (len(rings), "Rings that are known"),
            "rows_lost": (sum(ring.beat.lost for ring in rings), "Rows that rings dropped before they were read"),
            "rows_reduced": (sum(ring.beat.reduced for ring in rings), "Rows that came as a part of a summary only"),
            "step_first": (min((ring.beat.step for ring in rings), default=-1), "Step of the rank that is furthest behind"),
            "step_last": (max((ring.beat.step for ring in rings), default=-1), "Step of the rank that is furthest ahead"),
            "oldest_report_seconds": (
                max((now - ring.received_ns / 1e9 for ring in rings if ring.beat.ended is None), default=0.0),
                "Since the last report of the rank that has been silent longest",
            ),
        }
        if it.spans is not None:
            values |= {"spans_sent": (it.spans.sent, "Spans sent"), "spans_dropped": (it.spans.dropped, "Spans dropped")}
        for name, (value, text) in values.items():
            yield GaugeMetricFamily(f"windtunnel_collector_{name}", text, value=value)
        states = GaugeMetricFamily("windtunnel_collector_ranks", "Rings by the state of their process", labels=["process"])
        for process, count in Tally(ring.beat.process for ring in rings).items():
            states.add_metric([process], count)
        yield states
        yield from job_metrics(self.job)


JOB_METRICS = {
    "up": "1 if the figures of the job could be read, else 0",
    "info": "1; the run's name and its number of ranks",
    "ranks": "Ranks by the state of their process",
    "step": "Step of the rank that is furthest behind",
    "step_seconds": "Seconds of a step, median of the last 100",
    "tokens_per_second": "Tokens a second, if the run's fact tokens_per_step says how many a step has",
    "rank_own_seconds": "Seconds of a step that a rank computes itself, median of the last 100",
    "rank_waiting_seconds": "Seconds of a step that calls block a rank, median of the last 100",
    "rank_data_seconds": "Seconds of a step that a rank waits for data, median of the last 100",
    "rank_late_seconds": "Seconds by which a rank enters its calls after the median of its group, median of the last 100",
    "rank_slow_ratio": "How much longer a rank computes than its equals, where a finding names it; else 0",
    "findings": "Findings now, by verdict",
    "finding_cost_seconds": "Seconds of every step that a finding costs, by verdict and ranks",
    "alarms_total": "Alarms that were raised, by verdict",
    "last_alarm_timestamp_seconds": "When the last alarm was raised, unix time, by verdict",
    "incidents_total": "Incidents of a kept job, by class",
    "incident_attempt": "Attempt of a kept job in which its last incident was",
}
"""Name, after `windtunnel_job_`, and what it is."""
_OF_RANKS = {
    "rank_own_seconds": "own", "rank_waiting_seconds": "blocked", "rank_data_seconds": "data", "rank_late_seconds": "late",
    "rank_slow_ratio": "slow",
}  # fmt: skip


def job_metrics(figures: Mapping[str, Any] | None) -> Iterator[Any]:
    """Metric families of `job_figures`; None: they could not be read."""
    yield _gauge("up", float(figures is not None))
    if figures is None:
        return
    info = _gauge("info", labels=["run", "world"])
    info.add_metric([str(figures["run"]), str(figures["world"])], 1.0)
    yield info
    yield _by("ranks", "process", figures["states"])
    yield _gauge("step", float(figures["step"]))
    for name in ("step_seconds", "tokens_per_second"):
        if figures[name] is not None:
            yield _gauge(name, float(figures[name]))
    for name, key in _OF_RANKS.items():
        family = _gauge(name, labels=["rank", "host"])
        for rank in figures["ranks"]:
            if rank[key] is not None:
                family.add_metric([str(rank["rank"]), str(rank["host"])], float(rank[key]))
        yield family
    yield from _of_findings(figures)


def _of_findings(figures: Mapping[str, Any]) -> Iterator[Any]:
    counts: dict[str, float] = {}
    costs: dict[tuple[str, str], float] = {}
    for one in figures["findings"]:
        verdict = str(one["verdict"])
        counts[verdict] = counts.get(verdict, 0.0) + 1
        key = (verdict, ",".join(map(str, one["ranks"])))
        costs[key] = costs.get(key, 0.0) + float(one["cost"])
    yield _by("findings", "verdict", counts)
    cost = _gauge("finding_cost_seconds", labels=["verdict", "ranks"])
    for (verdict, ranks), seconds in costs.items():
        cost.add_metric([verdict, ranks], seconds)
    yield cost
    alarms = CounterMetricFamily("windtunnel_job_alarms", JOB_METRICS["alarms_total"], labels=["verdict"])
    for alarm in figures["alarms"]:
        alarms.add_metric([alarm["verdict"]], float(alarm["count"]))
    yield alarms
    yield _by("last_alarm_timestamp_seconds", "verdict", {alarm["verdict"]: alarm["last"] for alarm in figures["alarms"]})
    incidents = CounterMetricFamily("windtunnel_job_incidents", JOB_METRICS["incidents_total"], labels=["class"])
    for what, count in figures["incidents"].items():
        incidents.add_metric([what], float(count))
    yield incidents
    if figures["incident_attempt"] is not None:
        yield _gauge("incident_attempt", float(figures["incident_attempt"]))


def _gauge(name: str, value: float | None = None, labels: list[str] | None = None) -> Any:
    return GaugeMetricFamily(f"windtunnel_job_{name}", JOB_METRICS[name], value=value, labels=labels)


def _by(name: str, label: str, values: Mapping[str, float]) -> Any:
    family = _gauge(name, labels=[label])
    for key, value in values.items():
        family.add_metric([key], float(value))
    return family
