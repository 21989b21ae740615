"""`catalog/accuracy.toml`: what a validation says of published step times, by kind of run, for the reports of predictions; and of
published memory, for what a plan should keep free."""

from __future__ import annotations

import math
from statistics import fmean

from windtunnel.reality.score.report import Report
from windtunnel.reality.score.stated import published_steps

ONE_SIGMA = 0.6827
"""Share of errors within one standard deviation of a normal distribution."""


def memory_errors(report: Report) -> tuple[int, float, float] | None:
    """(rows, mean, error that the share ONE_SIGMA stays below) of published memory of runs, percent; None without such rows."""
    errors = sorted(
        abs(error)
        for score in report.rows
        if score.quantity.startswith("memory") and score.source_seen and (error := score.error_pct) is not None
    )
    return (len(errors), fmean(errors), errors[int(ONE_SIGMA * len(errors))]) if errors else None


def record(report: Report) -> str:
    """The file as text; the same bytes for equal reports."""
    parts = [
        "# Written by `windtunnel validate --record`; do not edit. Errors in percent of the published step time; an empty field\n"
        '# stands for any value.\nsource = "rows of measurements/, each with its own source"\n'
    ]
    for each in published_steps(report.rows):
        low, high = each.longer_pct
        parts.append(
            f'[[steps]]\ngpu = "{each.gpu}"\nframework = "{each.framework}"\ntrained = "{each.trained}"\n'
            f'precision = "{each.precision}"\nrows = {each.rows}\nfitted = {each.fitted}\nmean_pct = {each.mean_pct:.1f}\n'
            f"bias_pct = {each.bias_pct:.1f}\nspread_pct = {each.spread_pct:.1f}\nlonger_pct = [{low:.1f}, {high:.1f}]\n"
            f"widen = {math.ceil(1e4 * each.widen) / 1e4:.4f}\n"
        )
    if (memory := memory_errors(report)) is not None:
        rows, mean, sigma = memory
        parts.append(f"[memory]\nrows = {rows}\nmean_pct = {mean:.1f}\nsigma_pct = {sigma:.1f}\n")
    return "\n".join(parts)
