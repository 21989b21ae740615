"""Exports sections of chosen ranks as OpenTelemetry spans over OTLP/HTTP.

A step is the root span of a trace; the other sections of the rank in that step are its children. The OpenTelemetry SDK encodes,
retries and sends; it is imported only if spans are exported (0.1 s and 15 MiB).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.fleet.collect.registry import Rings
from windtunnel.records.sections import Section

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

SPANS = 500
"""Largest number of spans in one request."""
PATIENCE = 10.0
"""Seconds for which a request is retried, and for which `close` waits by default."""
_QUEUED = 64


class SpanExporter:
    """Sends spans from its own thread. Spans that do not fit its queue, or are refused, are dropped and counted.

    SpecError if OpenTelemetry is not installed.
    """

    def __init__(
        self, endpoint: str, ranks: Collection[int], rings: Rings, service: str = "windtunnel-fleet", patience: float = PATIENCE
    ) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError:
            raise SpecError(
                "--otlp", endpoint, "a receiver, if OpenTelemetry is installed", "Type: pip install 'windtunnel[fleet]'."
            ) from None
        self.endpoint = endpoint if endpoint.endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
        self.ranks, self.rings, self.patience = np.array(sorted(ranks), np.int64), rings, patience
        self.sent = self.dropped = 0
        self._resource, self._scope = Resource({"service.name": service}), InstrumentationScope("windtunnel.fleet")
        self._exporter = OTLPSpanExporter(self.endpoint, timeout=patience)
        self._queue: queue.Queue[list[ReadableSpan] | None] = queue.Queue(_QUEUED)
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def offer(self, rows: dict[str, Int64s]) -> None:
        """Queues the spans of rows in columns; never waits."""
        chosen = np.flatnonzero(np.isin(rows["rank"], self.ranks) & (rows["nanos"] >= 0))
        columns = {name: column[chosen] for name, column in rows.items()}
        for at in range(0, len(chosen), SPANS):
            spans = [self._span(columns, one) for one in range(at, min(at + SPANS, len(chosen)))]
            try:
                self._queue.put_nowait(spans)
            except queue.Full:
                self.dropped += len(spans)

    def close(self, limit: float = PATIENCE) -> None:
        """Sends what is queued, for at most `limit` seconds, and stops the thread."""
        with contextlib.suppress(queue.Full):  # the thread is in a request; it is a daemon, so it ends with the process
            self._queue.put(None, timeout=limit)
        self._thread.join(min(limit, self.patience))
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # ends the retries of a request
        self._thread.join(1.0)

    def _span(self, columns: dict[str, Int64s], at: int) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, TraceFlags

        row = {name: int(column[at]) for name, column in columns.items()}
        ring = self.rings.by_number[row["ring"]]
        root, is_root = f"{ring.key}:{row['step']}", row["section"] == Section.STEP
        trace = _number(f"{ring.identity.run}:{row['step']}", 16)

        def context(text: str) -> SpanContext:
            return SpanContext(trace, _number(text, 8), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        section = Section(row["section"]).name.lower() if row["section"] < len(Section) else f"section {row['section']}"
        name = json.loads(self.rings.names.values[row["name"]]) if row["name"] >= 0 else ""
        attributes: dict[str, int | str] = {
            "rank": row["rank"], "step": row["step"], "host": ring.identity.host, "bytes": row["bytes"],
            "micro_batch": row["micro_batch"], "peer": row["peer"], "call": row["call"],
        }  # fmt: skip
        return ReadableSpan(
            f"{section} {name}".strip(), context(root if is_root else f"{ring.key}#{row['number']}"),
            None if is_root else context(root), self._resource,
            {f"windtunnel.{key}": value for key, value in attributes.items() if value != -1},
            start_time=row["begin"], end_time=row["begin"] + row["nanos"], instrumentation_scope=self._scope,
        )  # fmt: skip

    def _run(self) -> None:
        while (spans := self._queue.get()) is not None:
            self._export(spans)

    def _export(self, spans: Sequence[ReadableSpan]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self.dropped += len(spans)


def _number(text: str, size: int) -> int:
    """A number of `size` bytes that identifies `text`."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "big")
