"""How a node ships."""

from __future__ import annotations

from dataclasses import dataclass

RANKS_A_SECOND = 2500
"""Ranks that send each second when nobody says how often: a job of 10,000 ranks sends each 4 s."""


@dataclass(frozen=True)
class ShipPolicy:
    """How often a node sends, and how much."""

    interval: float = 0.0  # seconds between batches; 0: by the job's size, 1 s up to 2,500 ranks
    detail: str = "full"  # every row, or "summary": counts and times by step and section only
    bytes_per_second: float = 0.0  # of the node; beyond it whole steps go as summaries; 0: no limit
    linger: float = 5.0  # seconds to wait for new rings when all ranks have ended
    patience: float = 30.0  # seconds that the last rows wait for a collector that does not answer, when all ranks have ended
    timeout: float = 20.0  # of one request

    def seconds(self, world: int) -> float:
        """Between two batches of a job of `world` ranks."""
        return self.interval or min(10.0, max(1.0, world / RANKS_A_SECOND))
