"""A validation in the terminal: families, worst rows, why rows were skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.reality.report import Family, Report, Score
from windtunnel.report.table import listing

UNITS = {"step_time_s": "s", "memory_gib": "GiB", "time_us": "µs", "mfu_pct": "%"}


def show(report: Report, console: Console | None = None, worst: int = 8) -> None:
    """Print headline, families, the `worst` rows and the reasons for skipped rows."""
    out = console or Console()
    out.print(Text("Error of predicted against measured, in percent of measured", style="bold"))
    out.print(_families([*report.headline, *report.families], len(report.headline)))
    scored = [s for s in report.rows if s.error_pct is not None]
    largest = sorted(scored, key=lambda s: -abs(s.error_pct or 0.0))[:worst]
    if largest:
        out.print(Text("\nLargest errors", style="bold"))
        out.print(_rows(largest))
    reasons = Counter(s.skipped for s in report.rows if s.skipped is not None)
    if reasons:
        out.print(Text(f"\n{sum(reasons.values())} skipped", style="bold"))
        for reason, count in reasons.most_common(12):
            out.print(Text(f"  {count:5d}  {reason}"))
    if report.ignored_columns:
        out.print(Text("\nColumns not used: " + ", ".join(report.ignored_columns), style="dim"))


def _families(families: Sequence[Family], heads: int) -> Table:
    table = listing(
        ("family", "left"),
        ("quantity", "left"),
        ("rows", "right"),
        ("mean |e|", "right"),
        ("median", "right"),
        ("bias", "right"),
        ("largest", "right"),
        ("skipped", "right"),
        wraps=("family", "quantity"),
    )
    for at, line in enumerate(families):
        cells = [
            line.family + (" (fitted)" if line.fitted and at >= heads else ""),
            line.quantity,
            f"{line.n:,}",
            _figure(line.mape_pct),
            _figure(line.median_abs_pct),
            _figure(line.bias_pct, "+"),
            _figure(line.max_abs_pct),
            f"{line.skipped:,}",
        ]
        table.add_row(*(Text(c) for c in cells), style="bold" if at < heads else "", end_section=at == heads - 1)
    return table


def _figure(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1f}"


def _rows(rows: Sequence[Score]) -> Table:
    table = listing(
        ("row", "left"),
        ("quantity", "left"),
        ("measured", "right"),
        ("predicted", "right"),
        ("error", "right"),
        wraps=("row", "quantity"),
    )
    for score in rows:
        unit = UNITS.get(score.quantity, "")
        table.add_row(
            *(
                Text(c)
                for c in (
                    score.id,
                    score.quantity,
                    f"{score.measured or 0.0:.4g} {unit}",
                    f"{score.predicted or 0.0:.4g} {unit}",
                    f"{score.error_pct or 0.0:+.1f} %",
                )
            )
        )
    return table
