"""Prometheus metrics of the collector, and of the job that it watches."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily

from windtunnel.fleet.collect.compact import Compactor
from windtunnel.fleet.collect.dead_letters import dead_letters
from windtunnel.fleet.collect.job_metrics import job_metrics
from windtunnel.fleet.collect.log import BatchLog
from windtunnel.fleet.collect.registry import Rings
from windtunnel.fleet.collect.spans import SpanExporter


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
