"""Colours of the parts of a measured step, the same on all pages of runs."""

from __future__ import annotations

from windtunnel.draw.page.charts import BLUE, GOLD, GREEN, GREY, ORANGE, PINK, SKY

PARTS = {
    "compute": ("kernels", BLUE),
    "exposed": ("exposed communication", ORANGE),
    "copy": ("copies", GOLD),
    "host": ("idle: not launched yet", PINK),
    "sync": ("idle: the host waits", "#8a6d3b"),
    "queue": ("idle: launched, waits", SKY),
    "unknown": ("unknown", GREY),
}
"""Part of a measured step -> what it is called, and its colour. They add up to the step."""

BY_NAME = {name: colour for name, colour in PARTS.values()} | {"hidden communication": GREEN}
"""Colours by what parts are called; kernel classes take the others."""

CLASSES = (BLUE, "#5b4b8a", GREEN, "#1e6091", "#2a9d8f", "#6a994e", "#3d5a80", "#457b9d", "#7b6d8d", "#588157")
"""Colours of kernel classes, in the order of their seconds."""
