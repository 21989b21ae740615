"""`windtunnel runs show`: the breakdown of a measured run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from windtunnel.cli.shared.common import Json, notes, print_list, show_spinner, writable, write_json
from windtunnel.cli.shared.pages import Html, check_html, said_command, write_html
from windtunnel.cli.shared.progress import bar
from windtunnel.records.run import Run
from windtunnel.runs.report import RunReport, as_json, rank_means, report_of
from windtunnel.runs.sources import read_run_of

EXAMPLES = """\b
Examples:
  windtunnel runs show trace-rank*.json.gz
  windtunnel runs show last-night --json breakdown.json
"""
_MOST = 12


def command(
    files: Annotated[list[str], typer.Argument(metavar="RUN|FILE...", help="A run's folder, or the files that it is read from.")],
    form: Annotated[str | None, typer.Option("--as", metavar="FORMAT", help="The format, if the content does not show it.")] = None,
    json: Json = None,
    html: Html = None,
) -> None:
    writable(("--json", json), ("--html", html))
    check_html(html)
    run, broken = run_of(files, form)
    with show_spinner("breaking it down"):
        report = report_of(run)
    if json is not None:
        write_json(as_json(report), json)
    if html is not None:
        from windtunnel.report.page.measured.run import page

        write_html(page(report, said_command(), broken), html)
    if json != "-":
        _show(report)
        print_list(broken, "could not be read")


def run_of(files: Sequence[str], form: str | None = None) -> tuple[Run, tuple[str, ...]]:
    """A run and what of it could not be read, with a bar. SpecError for files that hold something else."""
    with bar("reading the run") as shown:
        return read_run_of(files, form, shown)


def _show(report: RunReport) -> None:
    console = Console(highlight=False)
    if not report.steps:
        _show_steps(console, report)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("rank", "steps", "step", "compute", "exposed", "hidden", "copy", "host", "sync", "queue", "unknown"):
        table.add_column(column, justify="right")
    means = rank_means(report.steps)
    for mean in means[: 4 * _MOST]:
        parts = (mean.compute, mean.exposed, mean.hidden, mean.copy, mean.host, mean.sync, mean.queue, mean.unknown)
        table.add_row(str(mean.rank), str(mean.steps), _ms(mean.seconds), *(_ms(part) for part in parts))
    console.print("Mean step by rank, ms. Communication: exposed, hidden. Idle: host (not launched yet), sync (the host waits),")
    console.print("queue (launched, waits for a stream, a rank or the launch), unknown.")
    console.print(table)
    classes = Table(box=None, pad_edge=False)
    for column in ("kernel class", "ms a step", "share"):
        classes.add_column(column, justify="left" if column == "kernel class" else "right")
    total = sum(report.classes.values())
    for name, seconds in list(report.classes.items())[:_MOST]:
        classes.add_row(name, _ms(seconds), f"{seconds / total:.1%}")
    if report.classes:
        console.print(classes)
    _show_calls(console, report)
    _show_waits(console, report)


def _show_calls(console: Console, report: RunReport) -> None:
    if not report.calls:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("call", "group", "ranks", "bytes", "count", "total ms", "median us", "bus GB/s"):
        table.add_column(column, justify="left" if column in ("call", "group") else "right")
    for row in report.calls[:_MOST]:
        table.add_row(
            row.comm, row.group or "-", str(row.size or "-"), _format_known(row.bytes, "{:,.0f}"), str(row.count), _ms(row.seconds),
            f"{row.median * 1e6:,.1f}", _format_known(row.bus / 1e9, "{:,.2f}"),
        )  # fmt: skip
    console.print(table)
    if len(report.calls) > _MOST:
        console.print(f"and {len(report.calls) - _MOST} more kinds of calls")


def _show_waits(console: Console, report: RunReport) -> None:
    if not report.waits.calls:
        return
    clocks = report.clocks
    console.print(
        f"{clocks.calls} calls matched across ranks; their ends agree within {clocks.residual_median * 1e6:,.1f} us (median), "
        f"{clocks.residual_p95 * 1e6:,.1f} us (95 %). Waiting over the whole trace, where nothing computes; what others waited "
        "for a rank is the sum over them:"
    )
    table = Table(box=None, pad_edge=False)
    for column in ("rank", "last", "kept others ms", "waited ms", "in"):
        table.add_column(column, justify="left" if column == "in" else "right")
    for wait in sorted(report.waits.ranks, key=lambda one: -one.kept_waiting)[:_MOST]:
        kinds = ", ".join(f"{name} {_ms(seconds)}" for name, seconds in list(wait.calls.items())[:3])
        table.add_row(str(wait.rank), str(wait.last), _ms(wait.kept_waiting), _ms(wait.waited), kinds)
    console.print(table)
    for note in report.notes:
        notes().print(note, markup=False)


def _show_steps(console: Console, report: RunReport) -> None:
    """A run without events of a device: what its steps say."""
    steps = report.run.steps
    by_rank = bool((steps.rank >= 0).any())  # a log speaks for all ranks
    table = Table(box=None, pad_edge=False)
    for column in ("rank", "step", "ms") if by_rank else ("step", "ms"):
        table.add_column(column, justify="right")
    for at in range(min(len(steps), 4 * _MOST)):
        rank = str(steps.rank[at]) if steps.rank[at] >= 0 else "all"
        table.add_row(*([rank] if by_rank else []), str(steps.step[at]), _ms(float(steps.seconds[at])))
    console.print(f"{len(steps)} steps; no events of a device, so that there is nothing to break down.")
    console.print(table)
    if len(steps) > 4 * _MOST:
        console.print(f"and {len(steps) - 4 * _MOST:,} more")


def _ms(seconds: float) -> str:
    if seconds != seconds:
        return "-"
    return f"{seconds * 1e3:,.{2 if seconds < 1.0 else 1}f}"


def _format_known(value: float, form: str) -> str:
    return form.format(value) if value == value else "-"
