"""What of a run could not be read, at the head of its page: the answer is about the rest."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.report.page.prediction import section

MOST = 12


def broken_part(broken: Sequence[str]) -> list[Markup]:
    """The section that says so; none where all was read."""
    if not broken:
        return []
    left = [f"and {len(broken) - MOST:,} more"] if len(broken) > MOST else []
    told = ["The answer is about the rest of the run.", *left]
    return [section("A part could not be read", frame.part("reasons", told, broken[:MOST]))]
