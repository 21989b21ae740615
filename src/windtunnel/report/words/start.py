"""How long a job takes to start, where that is worth a line."""

from __future__ import annotations

from windtunnel.predict.prediction import Prediction

WORTH_A_LINE = 36.0
"""Seconds: a hundredth of an hour, which is about what a run between two failures of a large job loses to it."""


def start_line(prediction: Prediction) -> str | None:
    """The time until groups are set up, None where that is short; the other verb counts something else, and the line says so."""
    seconds = prediction.init_time_s
    if seconds < WORTH_A_LINE:
        return None
    store = prediction.job.runtime.startup.store
    return (
        f"start: {seconds:,.0f} s until groups are set up over a {store} store (runtime.startup); "
        "windtunnel fleet startup counts gloo's keys instead"
    )
