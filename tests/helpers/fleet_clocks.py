"""Counts messages that arrive before they were sent: on one clock there are none."""

from __future__ import annotations

from windtunnel.fleet.findings.clocks import message_pairs
from windtunnel.records.sections import Sections

_TOLERANCE = 1e-9


def negative_arrows(sections: Sections) -> int:
    """Pairs whose second event comes before the first by more than a nanosecond."""
    return sum(int((pair.late - pair.early < -_TOLERANCE).sum()) for pair in message_pairs(sections))
