"""Colours that eyes without red or green tell apart, and those of what answers show often."""

from __future__ import annotations

BLUE, ORANGE, GREEN, PINK, SKY, GOLD, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f8794"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, GOLD, GREY)
"""Okabe and Ito's colours, which differ for all eyes."""

VIOLET, BROWN = "#5b4b8a", "#8a6d3b"
IDLE = "var(--idle)"
"""What nothing takes, in the colours of a page."""
