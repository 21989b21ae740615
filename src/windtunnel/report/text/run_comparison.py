"""A run against its prediction, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.report.text.log_comparison import show_log_comparison
from windtunnel.report.words.measured.comparison import step_lines, unexplained_lines
from windtunnel.report.words.measured.seconds import seconds, signed_seconds
from windtunnel.runs.comparison import MOST_CAUSES, CallPart, RunComparison

MOST_ROWS = 8


def show(comparison: RunComparison, console: Console) -> None:
    """The step, the causes, then the parts, calls and ranks behind them."""
    _headline(comparison, console)
    if comparison.fit is None:
        show_log_comparison(comparison, console)
        return
    _causes(comparison, console)
    _parts(comparison, console)
    _calls(comparison, console)
    _ranks(comparison, console)


def _headline(comparison: RunComparison, console: Console) -> None:
    first, *others = step_lines(comparison)
    strong, bracket, rest = first.partition(" (") if comparison.steps else ("", "", first)
    console.print(Text.assemble((strong, "bold"), bracket, rest))
    for line in others:
        console.print(line, markup=False, highlight=False)


def _causes(comparison: RunComparison, console: Console) -> None:
    console.print()
    console.print("[bold]Largest causes[/] (what the predicted step grows by with each alone)", highlight=False)
    causes = comparison.causes[:MOST_CAUSES]
    if not causes:
        console.print("  none: every factor is within its error of 1")
    for number, cause in enumerate(causes, 1):
        console.print(f"  {number}. {cause.words}: {signed_seconds(cause.seconds)}", markup=False, highlight=False)
        console.print(f"     To test it: {cause.test}.", markup=False, highlight=False)
    for line in unexplained_lines(comparison):
        console.print(f"  {line}", markup=False, highlight=False)


def _parts(comparison: RunComparison, console: Console) -> None:
    table = _table("part of a step, mean over ranks", "measured", "expected", "difference")
    for part in comparison.parts:
        if max(part.measured, part.expected) > 1e-4 * comparison.measured_step:
            table.add_row(part.name, seconds(part.measured), seconds(part.expected), signed_seconds(part.measured - part.expected))
    console.print()
    console.print(table)


def _calls(comparison: RunComparison, console: Console) -> None:
    if not comparison.calls:
        return
    table = _table("call", "over", "bytes", "count", "expected", "one takes", "expected")
    for row in comparison.calls[:MOST_ROWS]:
        size = "-" if row.bytes < 0 else f"{row.bytes:,.0f}"
        table.add_row(row.comm, row.axis, size, _count(row.measured_count), _count(row.expected_count), *_seconds_each(row))
    console.print()
    console.print(table)


def _ranks(comparison: RunComparison, console: Console) -> None:
    if len(comparison.ranks) < 2:
        return
    table = _table("rank", "stage", "kernels", "expected", "others waited for it", "it waited")
    for row in sorted(comparison.ranks, key=lambda one: -one.kept_waiting)[:MOST_ROWS]:
        times = (row.compute, row.expected_compute, row.kept_waiting, row.waited)
        table.add_row(str(row.rank), str(row.stage), *map(seconds, times))
    console.print()
    console.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or column == "over" else "right")
    return table


def _seconds_each(row: CallPart) -> tuple[str, str]:
    return seconds(row.measured_each), seconds(row.expected_each)


def _count(count: float) -> str:
    return f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"
