"""A watched run against its prediction, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from windtunnel.draw.listing import listing
from windtunnel.runs.comparison import MOST_CAUSES
from windtunnel.runs.fleet.comparison import FleetComparison, SectionPart
from windtunnel.sheet.numbers import measured_seconds as seconds

MOST_ROWS = 12


def show_comparison(comparison: FleetComparison, console: Console) -> None:
    """The step, the causes, then the sections and calls behind them."""
    step = comparison.step
    before = "we expect" if comparison.predicted else "the earlier run took"
    console.print(
        f"[bold]The step takes {seconds(step.median)}[/] (median of {comparison.steps}; 10 to 90 %: {seconds(step.low)} to "
        f"{seconds(step.high)}); {before} {seconds(step.expected)} ±{step.error:.0%}: {step.excess:+.1%}.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    if comparison.cores < 1.0:
        console.print(
            f"Each rank has {comparison.cores:.2g} of a core: ranks that share cores take turns, and what one works longer costs "
            "the others too.",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    console.print()
    norm = "the prediction" if comparison.predicted else "the earlier run"
    console.print(f"[bold]What differs from {norm}[/] (and what each alone adds to a step)", highlight=False)
    if not comparison.causes:
        console.print("  nothing: every section and call is within its error bar")
    for number, cause in enumerate(comparison.causes[: 2 * MOST_CAUSES], 1):
        console.print(f"  {number}. {cause.words}: {_signed_seconds(cause.seconds)}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"     To test it: {cause.test}.", markup=False, highlight=False, soft_wrap=True)
    if comparison.causes:
        rest = step.median - comparison.explained_step
        console.print(
            f"  With all of them we would expect {seconds(comparison.explained_step)}; {_signed_seconds(rest)} stays unexplained.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    if comparison.apart:
        console.print()
        console.print("[bold]What the prediction has no expectation for[/] (no cause, and in no sum above)", highlight=False)
    for one in comparison.apart:
        console.print(f"  {one.words}: {_signed_seconds(one.seconds)}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"     To judge it: {one.test}.", markup=False, highlight=False, soft_wrap=True)
    console.print()
    console.print("A step's sections, own time of a rank", highlight=False)
    console.print(_sections(comparison))
    _calls(comparison, console)


def _sections(comparison: FleetComparison) -> Table:
    several = len({one.stage for one in comparison.sections}) > 1
    table = listing(
        ("section", "left"), ("stage", "right"), ("expected", "right"), ("±", "right"), ("median", "right"),
        ("10 %", "right"), ("90 %", "right"), ("", "left"),
    )  # fmt: skip
    for one in comparison.sections:
        if max(one.expected, one.high) > 1e-4 * comparison.step.median:
            cells = (
                seconds(one.expected) if one.whole or one.expected else "-",
                f"{one.error:.0%}" if one.expected and one.whole else "",
                *map(seconds, (one.median, one.low, one.high)),
            )
            table.add_row(one.name, str(one.stage) if several else "", *cells, _verdict(one))
    return table


def _verdict(one: SectionPart) -> str:
    if not one.whole:
        return "known in part" if one.expected else "no expectation"
    if not one.leaves:
        return "as expected"
    return f"{one.excess:+.1%}" if one.excess == one.excess else "not expected"


def _calls(comparison: FleetComparison, console: Console) -> None:
    if not comparison.calls:
        return
    table = listing(
        ("call", "left"), ("over", "left"), ("bytes", "right"), ("count", "right"), ("expected", "right"),
        ("median", "right"), ("expected", "right"), ("±", "right"), ("10 %", "right"), ("90 %", "right"),
    )  # fmt: skip
    for row in comparison.calls[:MOST_ROWS]:
        size = "-" if row.bytes < 0 else f"{row.bytes:,.0f}"
        table.add_row(
            row.comm, row.axis, size, _count(row.measured_count), _count(row.expected_count), seconds(row.median),
            seconds(row.expected_each), f"{row.error:.0%}", seconds(row.low), seconds(row.high),
        )  # fmt: skip
    console.print()
    console.print("Calls, from the entry of their last rank", highlight=False)
    console.print(table)


def _count(count: float) -> str:
    return f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"


def _signed_seconds(value: float) -> str:
    return ("+" if value >= 0 else "-") + seconds(abs(value))
