"""How long the processes beside a job may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BesideLimits:
    """Seconds. What a job is watched by may not hold up its end: whatever has not ended by then is killed."""

    start_seconds: float = 60.0
    """For the collector to start, and for another node to make the secrets."""
    monitor_seconds: float = 2.0
    """For the monitor to end, after the command."""
    ship_seconds: float = 10.0
    """For the shipper to send the rest, after the command: while the monitor ends."""
    others_seconds: float = 20.0
    """For ranks on other nodes to end after that, as long as they are heard of."""
    ask_seconds: float = 2.0
    """For one answer of the collector while other nodes are waited for."""
    collector_seconds: float = 8.0
    """For the collector to end after that, while the records are read."""
    summary_seconds: float = 10.0
    """For reading and judging the records: of one node, as soon as the monitor has ended; of several, while the collector ends."""
