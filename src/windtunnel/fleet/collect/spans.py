"""Sections of chosen ranks as OpenTelemetry spans, sent as OTLP over HTTP in JSON.

Format: OTLP 1.x, `ExportTraceServiceRequest` in its JSON mapping (opentelemetry.io/docs/specs/otlp): ids in hexadecimal, times and
64-bit numbers as strings. A step is the root of a trace; the other sections of the rank in that step are its children.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.fleet.collect.registry import Rings
from windtunnel.records.sections import Section

SPANS = 500
"""Of one request."""
_QUEUED = 64
_PATIENCE = 10.0


class SpanExporter:
    """Sends spans from a thread of its own; what does not fit its queue, or is refused, is dropped and counted."""

    def __init__(self, endpoint: str, ranks: Collection[int], rings: Rings, service: str = "windtunnel-fleet") -> None:
        self.endpoint = endpoint if endpoint.endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
        self.ranks, self.rings, self.service = np.array(sorted(ranks), np.int64), rings, service
        self.sent = self.dropped = 0
        self._queue: queue.Queue[list[dict[str, Any]] | None] = queue.Queue(_QUEUED)
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def offer(self, rows: dict[str, Int64s]) -> None:
        """Takes rows of the run in columns; never waits."""
        chosen = np.flatnonzero(np.isin(rows["rank"], self.ranks) & (rows["nanos"] >= 0))
        columns = {name: column[chosen] for name, column in rows.items()}
        for at in range(0, len(chosen), SPANS):
            spans = [self._span(columns, one) for one in range(at, min(at + SPANS, len(chosen)))]
            try:
                self._queue.put_nowait(spans)
            except queue.Full:
                self.dropped += len(spans)

    def close(self) -> None:
        """Sends what is queued, for a while, and ends."""
        self._queue.put(None)
        self._thread.join(_PATIENCE)

    def _span(self, columns: dict[str, Int64s], at: int) -> dict[str, Any]:
        row = {name: int(column[at]) for name, column in columns.items()}
        ring = self.rings.by_number[row["ring"]]
        root = f"{ring.key}:{row['step']}"
        section = Section(row["section"]).name.lower() if row["section"] < len(Section) else f"section {row['section']}"
        named = json.loads(self.rings.names.values[row["name"]]) if row["name"] >= 0 else ""
        span = {
            "traceId": _hex(f"{ring.identity.run}:{row['step']}", 16),
            "spanId": _hex(root if row["section"] == Section.STEP else f"{ring.key}#{row['number']}", 8),
            "name": f"{section} {named}".strip(), "kind": 1,
            "startTimeUnixNano": str(row["begin"]), "endTimeUnixNano": str(row["begin"] + row["nanos"]),
            "attributes": [
                _attribute(name, value)
                for name, value in (
                    ("rank", row["rank"]), ("step", row["step"]), ("host", ring.identity.host), ("bytes", row["bytes"]),
                    ("micro_batch", row["micro_batch"]), ("peer", row["peer"]), ("call", row["call"]),
                )
                if value != -1
            ],
        }  # fmt: skip
        if row["section"] != Section.STEP:
            span["parentSpanId"] = _hex(root, 8)
        return span

    def _run(self) -> None:
        while (spans := self._queue.get()) is not None:
            body = json.dumps(_request(self.service, spans)).encode()
            request = urllib.request.Request(self.endpoint, body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=_PATIENCE):
                    self.sent += len(spans)
            except (urllib.error.URLError, OSError, ValueError):
                self.dropped += len(spans)


def _request(service: str, spans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    resource = {"attributes": [_attribute("service.name", service)]}
    return {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "windtunnel.fleet"}, "spans": list(spans)}]}]
    }


def _attribute(name: str, value: int | str) -> dict[str, Any]:
    key = name if name.startswith("service.") else f"windtunnel.{name}"
    return {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}


def _hex(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


Seen = Callable[[dict[str, Int64s]], None]
