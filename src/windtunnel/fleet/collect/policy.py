"""Limits and retention of a collector."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.fleet.batch.message import MOST_BYTES


@dataclass(frozen=True)
class CollectPolicy:
    """Limits of a collector. Bytes and seconds."""

    segment_bytes: int = 64 << 20
    segment_seconds: float = 120.0
    backlog_bytes: int = 1 << 30  # of the log not yet compacted; beyond it batches are refused with 429
    pending_bytes: int = 64 << 20  # received and not yet on disk; beyond it batches are refused with 503
    body_bytes: int = MOST_BYTES
    raw_seconds: float = 7 * 86400.0  # how long sections are kept
    raw_bytes: int = 200 << 30
    summary_seconds: float = 365 * 86400.0  # how long summaries and clock exchanges are kept
    answer_rows: int = 5_000_000  # of one query over HTTP
    json_rows: int = 20_000
