"""Labels of families, without a GPU that all of them share and without repeated words."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.base.units import show_time
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import Score

UNITS = {"step_time_s": "s", "memory_gib": "GiB", "time_us": "µs", "mfu_pct": "%", "node_power_w": "W", "joule_per_token": "J"}
NAMES = {
    "step_time_s": "step time",
    "memory_gib": "memory",
    "time_us": "time",
    "mfu_pct": "MFU",
    "node_power_w": "power of a node",
    "joule_per_token": "joules a token",
    "cap_time_ratio": "time under a power cap",
    "cap_energy_ratio": "energy under a power cap",
}


def format_value(score: Score, value: float | None) -> str:
    """A value of the score's quantity with its unit."""
    number = value or 0.0
    return show_time(1e-6 * number) if score.quantity == "time_us" else f"{number:.4g} {UNITS.get(score.quantity, '')}"


def shared_gpu(report: Report) -> str:
    """The GPU of all rows of a report over kernel datasets; empty where there are several, or other tables."""
    if any(score.quantity != "time_us" for score in report.rows):
        return ""
    first = {score.family.split(" ", 1)[0] for score in report.rows}
    return first.pop() if len(first) == 1 and all(" " in score.family for score in report.rows) else ""


def label(family: str, gpu: str = "") -> str:
    """`family` as a table shows it: "cpu-x layer layer forward" of the shared GPU cpu-x is "layer forward"."""
    words = family.removeprefix(f"{gpu} ").split(" ") if gpu else family.split(" ")
    return " ".join(word for at, word in enumerate(words) if at == 0 or word != words[at - 1])


def quantities(report: Report) -> Sequence[str]:
    """Every quantity of the rows, in the order of the data."""
    return list(dict.fromkeys(score.quantity for score in report.rows))
