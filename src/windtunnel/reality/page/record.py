"""`catalog/accuracy.toml`: what a validation says of published step times, by kind of run, for the reports of predictions."""

from __future__ import annotations

import math

from windtunnel.reality.score.report import Report
from windtunnel.reality.score.stated import published_steps


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
    return "\n".join(parts)
