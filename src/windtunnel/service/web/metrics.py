"""What a service tells Prometheus: its queue, its questions by verb and outcome, how long they took, its requests, its memory.

Counters are of this server since its start. Gauges of the queue are of the database, which several servers may share.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from windtunnel.base.version import __version__
from windtunnel.service.door import ServiceDoor
from windtunnel.service.store.shelf import EndedJob
from windtunnel.service.web.guard import SeenRequest

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "DELETE", "PUT", "PATCH")
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_QUESTION_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Upper bounds of the buckets."""


class ServiceMetrics:
    """Counts what the door and the guard tell it, and reads the rest at each scrape."""

    def __init__(self, door: ServiceDoor) -> None:
        self._door = door
        self._registry = CollectorRegistry()
        self._registry.register(self)  # any object with a method `collect` works
        self._counts: Mapping[str, int] = {}
        own = self._registry
        self._questions = Counter(
            "windtunnel_questions", "Questions, by verb and outcome: done, failed, cancelled, kept, refused", ["verb", "outcome"],
            registry=own,
        )  # fmt: skip
        self._failures = Counter("windtunnel_question_failures", "Questions that failed, by kind of error", ["kind"], registry=own)
        self._seconds = Histogram(
            "windtunnel_question_seconds", "From asking to the end of a question that was worked out", ["verb"], registry=own,
            buckets=_QUESTION_SECONDS,
        )  # fmt: skip
        self._waits = Histogram(
            "windtunnel_question_wait_seconds", "From asking to the start of the work", registry=own, buckets=_QUESTION_SECONDS
        )
        self._requests = Counter("windtunnel_requests", "HTTP requests, by method and status", ["method", "status"], registry=own)
        self._request_seconds = Histogram(
            "windtunnel_request_seconds", "HTTP requests, without streams", registry=own, buckets=_REQUEST_SECONDS
        )
        door.when_ended, door.when_told = self._count_ended, self._count_told

    def count_request(self, seen: SeenRequest) -> None:
        """Counts a request that has its response."""
        self._requests.labels(seen.method if seen.method in _METHODS else "other", str(seen.status)).inc()
        if not seen.is_stream:
            self._request_seconds.observe(seen.seconds)

    def _count_ended(self, job: EndedJob) -> None:
        self._questions.labels(job.verb, job.state).inc()
        if job.started is not None:
            self._waits.observe(max(0.0, job.started - job.created))
        if job.state == "done":
            self._seconds.labels(job.verb).observe(max(0.0, job.ended - job.created))
        if job.state == "failed":
            self._failures.labels(job.kind).inc()

    def _count_told(self, verb: str, outcome: str) -> None:
        self._questions.labels(verb, outcome).inc()

    async def text(self) -> bytes:
        """The metrics in Prometheus's text format."""
        self._counts = await self._door.settle()
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Any]:
        """Current values of the gauges."""
        gauges = {
            "questions_waiting": ("Questions that wait for a worker", self._counts.get("queued", 0)),
            "questions_running": ("Questions in work", self._counts.get("running", 0)),
            "answers_kept": ("Answers that are kept", self._counts.get("answers", 0)),
        }
        pids = [] if self._door.pool is None else self._door.pool.pids()
        gauges["workers"] = ("Worker processes of this server that run", len(pids))
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"windtunnel_{name}", text, value=value)
        build = GaugeMetricFamily("windtunnel_build_info", "The version that serves", labels=["version"])
        build.add_metric([__version__], 1.0)
        yield build
        memory = GaugeMetricFamily(
            "windtunnel_memory_bytes", "Resident memory: the server, its workers, their questions", labels=["process"]
        )
        questions = [child for pid in pids for child in children_of(pid)]
        for label, processes in (("server", [os.getpid()]), ("workers", pids), ("questions", questions)):
            memory.add_metric([label], float(resident_bytes(processes)))
        yield memory


def resident_bytes(pids: Sequence[int]) -> int:
    """Resident memory of processes together, in bytes; one that has ended counts 0."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def children_of(pid: int) -> list[int]:
    """Processes that the main thread of `pid` started and that live."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []
