"""`catalog/accuracy.toml`: what a validation says of published step times, by GPU and framework, for reports of predictions, and of
published memory, for what a plan should keep free."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from windtunnel.reality.score.report import Report
from windtunnel.report.words.published import PublishedSteps


def steps(report: Report) -> tuple[PublishedSteps, ...]:
    """A line for each GPU and framework, fitted rows apart from others; rows whose source was not read are left out."""
    groups: dict[tuple[str, str, bool], list[tuple[float, float]]] = defaultdict(list)
    for score in report.rows:
        if score.quantity == "step_time_s" and score.gpu and score.source_seen and score.claimed_pct is not None:
            error = score.error_pct
            if error is not None:
                groups[score.gpu, score.software, score.fitted].append((error, score.claimed_pct))
    return tuple(
        PublishedSteps(
            *key,
            len(pairs),
            fmean(abs(error) for error, _ in pairs),
            fmean(error for error, _ in pairs),
            100.0 * fmean(abs(error) <= claimed for error, claimed in pairs),
        )
        for key, pairs in sorted(groups.items())
    )


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
        "# Written by `windtunnel validate --record`; do not edit. Errors in percent of the published step time.\n"
        'source = "rows of measurements/, each with its own source"\n'
    ]
    for each in steps(report):
        parts.append(
            f'[[steps]]\ngpu = "{each.gpu}"\nframework = "{each.framework}"\nfitted = {str(each.fitted).lower()}\n'
            f"rows = {each.rows}\nmean_pct = {each.mean_pct:.1f}\nbias_pct = {each.bias_pct:.1f}\n"
            f"within_pct = {each.within_pct:.0f}\n"
        )
    if (memory := memory_errors(report)) is not None:
        rows, mean, sigma = memory
        parts.append(f"[memory]\nrows = {rows}\nmean_pct = {mean:.1f}\nsigma_pct = {sigma:.1f}\n")
    return "\n".join(parts)
