"""Limits and retention of a collector."""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.fleet.batch import MOST_BYTES


@dataclass(frozen=True)
class CollectPolicy:
    """Limits of a collector. Bytes and seconds."""

    segment_bytes: int = 64 << 20
    """Size at which a segment of the log is closed."""
    segment_seconds: float = 120.0
    """Age at which a segment of the log is closed."""
    backlog_bytes: int = 1 << 30
    """Log that is not compacted yet; beyond it batches are refused with 429."""
    pending_bytes: int = 64 << 20
    """Received and not yet on disk; beyond it batches are refused with 503."""
    body_bytes: int = MOST_BYTES
    """Largest body of a request."""
    raw_seconds: float = 7 * 86400.0
    """How long sections are kept."""
    raw_bytes: int = 200 << 30
    """How many bytes of sections are kept."""
    summary_seconds: float = 365 * 86400.0
    """How long summaries and clock exchanges are kept."""
    answer_rows: int = 5_000_000
    """Largest number of rows of one answer over HTTP."""
    json_rows: int = 20_000
    """Largest number of rows of an answer in JSON."""
    tick_seconds: float = 1.0
    """How often the age of the open segment, of connections and of idle processes is looked at."""
    retention_seconds: float = 300.0
    """How often files are looked at whose time is over."""
    retry_seconds: float = 30.0
    """Longest wait before a compaction that failed is repeated."""
    question_seconds: float = 60.0
    """Longest time of a question; its process is ended then, and the answer is 503."""
    questions: int = 2
    """Processes that answer questions at the same time."""
    idle_seconds: float = 60.0
    """How long a process without a question is kept; the last one stays."""
    metric_ranks: int = 1024
    """Ranks that have metrics of their own: those with the most work of their own."""
    metric_seconds: float = 5.0
    """How long the figures of the job in the metrics are used before they are read again."""
    head_seconds: float = 10.0
    """Longest time of a connection for the head of a request, with the handshake of TLS."""
    body_seconds: float = 60.0
    """Longest time for the body of a request."""
    strangers: int = 512
    """Connections of one address that have not shown the token yet; beyond it the oldest is closed."""
    connections: int = 16384
    """Connections in all; fewer where the process may not open as many files."""
    close_seconds: float = 5.0
    """Longest wait for requests, and for the compaction, when the collector ends."""
