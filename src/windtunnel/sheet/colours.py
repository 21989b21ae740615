"""Colours that eyes without red or green tell apart, and those of what answers show often."""

from __future__ import annotations

BLUE, ORANGE, GREEN, PINK, SKY, GOLD, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f8794"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, GOLD, GREY)
"""Okabe and Ito's colours, which differ for all eyes."""

VIOLET, BROWN = "#5b4b8a", "#8a6d3b"
IDLE = "var(--idle)"
"""What nothing takes, in the colours of a page."""
LOADS = (
    (0.01, "#94a3b8", "under 1%"), (0.05, "#7dd3fc", "to 5%"), (0.1, "#3b82f6", "to 10%"), (0.25, "#14b8a6", "to 25%"),
    (0.5, "#eab308", "to 50%"), (0.75, "#f97316", "to 75%"), (1.01, "#dc2626", "over 75%"),
)  # fmt: skip
"""Share of its time that a link is used, below which it has a colour, and the words for that."""


def load_step(load: float) -> int:
    """The step of a link that is used `load` (0 to 1) of the time."""
    return next((number for number, (most, *_) in enumerate(LOADS) if load < most), len(LOADS) - 1)
