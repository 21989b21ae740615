"""Limits and retention of a collector."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.fleet.batch.message import MOST_BYTES


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
