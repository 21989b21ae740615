"""A run with failures in words: its figures, the parts of its time, what follows a failure."""

from __future__ import annotations

import math
from typing import Any

from windtunnel.goodput.answer import Goodput
from windtunnel.sheet import numbers as say
from windtunnel.spec import names

SHOWN_GAIN = 5e-5  # gain of goodput that is listed: 0.01 points, rounded


PART_NAMES = {
    "useful": "training",
    "slow": "slow nodes",
    "save": "stops for checkpoints",
    "drag": "slower beside flushes",
    "replay": "work done again",
    "detect": "detection",
    "diagnose": "diagnosis",
    "repair": "repair on the spot",
    "wait": "waiting for a node",
    "init": "start",
    "load": "load of checkpoints",
}
"""Parts of a run's wall time, in the order of reports."""


def name_of_failures(reliability: str) -> str:
    """What to call a table of failures: its entry of the catalogue, or nobody's."""
    return reliability if reliability in names("reliability") else "the job states them"


def run_figures(answer: Goodput) -> list[tuple[str, str, str]]:
    steady, simulated = answer.steady, answer.simulated
    figures = [("ETTR", say.percent(answer.ettr, 2), "bold cyan"), ("goodput", say.percent(answer.goodput, 2), "bold green")]
    if answer.work_days is not None:
        figures.append(("days", f"{answer.expected_days:,.1f}" if answer.expected_days is not None else "never ends", "bold"))
        if simulated is not None and simulated.finished == 1.0:
            figures.append(
                (
                    "p10 / p50 / p90",
                    " / ".join(f"{d:,.1f}" for d in (simulated.days.p10, simulated.days.p50, simulated.days.p90)),
                    "",
                )
            )
        figures.append(("days without failures", f"{answer.work_days:,.1f}", ""))
    elif simulated is not None:
        days = simulated.trained_days
        figures.append((f"training in {say.duration(answer.expected_days or 0.0)}", say.duration(days.mean), "bold"))
        figures.append(("p10 / p50 / p90", f"{days.p10:,.1f} / {days.p50:,.1f} / {days.p90:,.1f}", ""))
    figures.append(("a failure every", say_time(steady.mtbf), ""))
    figures.append(("a recovery takes", say_time(steady.recovery), ""))
    figures.append(
        (
            "a checkpoint every",
            f"{say_time(answer.interval_s)}, {answer.interval_steps:,} step{'s' * (answer.interval_steps > 1)}",
            "",
        )
    )
    return figures


def what_follows(kind: Any) -> str:
    words = []
    if kind.slows > 1.0:
        words.append(f"steps take {kind.slows:g} times as long for {say_time(kind.detect.mean)}")
    elif kind.detect.mean > 0.0:
        words.append(f"seen after {say_time(kind.detect.mean)}")
    if kind.diagnose.mean > 0.0:
        words.append(f"diagnosed in {say_time(kind.diagnose.mean)}")
    if kind.automatic < 1.0:
        words.append(f"{say.percent(1.0 - kind.automatic)} by hand, {say_time(kind.by_hand.mean)}")
    if kind.repair.mean > 0.0:
        words.append(f"{say_time(kind.repair.mean)} on the spot")
    words += ["another node"] * kind.replaces_node + ["saves first"] * kind.saves_first + ["no restart"] * (not kind.restarts)
    words += [f"{say.percent(kind.returns, 0)} come again"] * (kind.returns > 0.0)
    return ", ".join(words) or "restart"


def say_time(seconds: float) -> str:
    """`45 s`, `12.3 min`, `5.2 h`, `3.1 days`."""
    if not math.isfinite(seconds):
        return "never"
    for limit, scale, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / scale:.3g} {unit}"
    return f"{say.count(seconds / 86400.0)} days"
