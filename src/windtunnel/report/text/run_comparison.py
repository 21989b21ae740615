"""A run against its prediction, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from windtunnel.report.text.log_comparison import show_log_comparison
from windtunnel.report.text.measured_seconds import seconds, signed_seconds
from windtunnel.runs.comparison import MOST_CAUSES, CallPart, RunComparison

MOST_ROWS = 8
_ALIKE = 3.0
"""Times by which a step and its prediction may differ before they are likely of two jobs. Assumed."""


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
    measured, expected = comparison.measured_step, comparison.expected_step
    if not comparison.steps:
        console.print(f"The run tells no step's time. We expect {seconds(expected)}.", highlight=False)
        return
    over = measured / expected - 1.0
    update = comparison.log.update if comparison.log is not None else None
    what = "step" if update is None else "update of the policy"
    console.print(
        f"[bold]Your {what} takes {seconds(measured)}[/] (median of {comparison.steps}, ±{seconds(comparison.step_spread)}); "
        f"we expect {seconds(expected)}: {over:+.1%}.",
        highlight=False,
    )
    if update is not None:
        console.print(
            f"A step of reinforcement learning is longer: {update[0]} is its part that the job is.", highlight=False, markup=False
        )
    elif comparison.log is not None and comparison.log.rollouts:
        console.print(
            "The log is of reinforcement learning: its steps generate text too, the job is the update alone, and the log does not "
            "say how long that takes.",
            highlight=False,
        )
    _print_verdict(over, comparison, console)
    if not 1.0 / _ALIKE < measured / expected < _ALIKE:
        console.print(
            "So far apart, the run and the job are hardly the same: check the model, its layers, the batch and the number of GPUs.",
            highlight=False,
        )


def _print_verdict(over: float, comparison: RunComparison, console: Console) -> None:
    """Whether the difference is more than the prediction may be wrong by."""
    error = comparison.relative_error
    words = f"The prediction is good to ±{100 * error:.0f} % (one sigma)"
    if abs(over) <= error:
        console.print(f"{words}: the difference is inside, and may be the prediction's.", highlight=False)
    else:
        console.print(f"{words}: the difference is {abs(over) / error:.1f} times that.", highlight=False)


def _causes(comparison: RunComparison, console: Console) -> None:
    console.print()
    console.print("[bold]Largest causes[/] (what the predicted step grows by with each alone)", highlight=False)
    causes = comparison.causes[:MOST_CAUSES]
    if not causes:
        console.print("  none: every factor is within its error of 1")
    for number, cause in enumerate(causes, 1):
        console.print(f"  {number}. {cause.words}: {signed_seconds(cause.seconds)}", markup=False, highlight=False)
        console.print(f"     To test it: {cause.test}.", markup=False, highlight=False)
    rest = comparison.measured_step - comparison.explained_step
    console.print(
        f"  With all factors we would expect {seconds(comparison.explained_step)}; {signed_seconds(rest)} stays unexplained.",
        markup=False,
        highlight=False,
    )
    if comparison.fit is not None:
        for key, lost in comparison.fit.factors.missing[:2]:
            console.print(
                f"  Expected, not in the run: {key.comm.name.lower()} over {key.axis}, {seconds(lost)} a step.", highlight=False
            )
        for key, more in comparison.fit.factors.extra[:2]:
            console.print(
                f"  In the run, not expected: {key.comm.name.lower()} over {key.axis}, {seconds(more)} a step.", highlight=False
            )


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
