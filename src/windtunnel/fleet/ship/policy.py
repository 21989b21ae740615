"""How often and how much a shipper sends."""

from __future__ import annotations

from dataclasses import dataclass

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
