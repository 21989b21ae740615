"""A run of which only a log is there, against its prediction: the log's own figures, suspects, and how to learn more."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from windtunnel.report.words.measured.comparison import course_lines, log_doubts, log_figures, suspect_command
from windtunnel.report.words.measured.seconds import signed_seconds
from windtunnel.runs.comparison import RunComparison
from windtunnel.runs.log_facts import LogFacts
from windtunnel.runs.recording import recording_hint
from windtunnel.runs.suspects import SuspectedCause

MOST_SUSPECTS = 6


def show_log_comparison(comparison: RunComparison, console: Console) -> None:
    """What the log says of itself, the suspects, and how to record traces."""
    if comparison.log is not None:
        _print_contradictions(comparison.log, console)
        _print_figures(comparison.log, console)
        _print_course(comparison.log, console)
    _print_suspects(comparison, console)
    console.print()
    console.print(
        "Step times do not say where the time goes. To see it, record traces of two steps, and compare those:", highlight=False
    )
    console.print(f"  {recording_hint(comparison.job.runtime.framework)}", markup=False, highlight=False)
    console.print("  windtunnel compare traces/*.json JOB", markup=False, highlight=False)


def _print_contradictions(log: LogFacts, console: Console) -> None:
    if log.contradictions:
        console.print()
        console.print("[bold]The log is of another job[/] than the one it is compared with:", highlight=False)
    for name, theirs, ours in log.contradictions:
        console.print(f"  {name}: {theirs} in the log, {ours} in the job", markup=False, highlight=False)


def _print_figures(log: LogFacts, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for number, head in enumerate(("logged", "measured", "expected", "difference")):
        table.add_column(head, justify="left" if number == 0 else "right")
    for row in log_figures(log):
        table.add_row(*row)
    if table.row_count:
        console.print()
        console.print(table)
    for line in log_doubts(log):
        console.print(line, highlight=False)


def _print_course(log: LogFacts, console: Console) -> None:
    if lines := course_lines(log):
        console.print()
        console.print("[bold]Over the run[/]")
        for line in lines:
            console.print(f"  {line}", markup=False, highlight=False)


def _print_suspects(comparison: RunComparison, console: Console) -> None:
    if not comparison.suspects:
        return
    console.print()
    console.print(
        "[bold]Suspects[/], likeliest first, each alone in the prediction; the command shows the whole step with it.",
        highlight=False,
    )
    for number, suspect in enumerate(comparison.suspects[:MOST_SUSPECTS], 1):
        for line in _suspect_lines(number, suspect):
            console.print(line, markup=False, highlight=False)


def _suspect_lines(number: int, suspect: SuspectedCause) -> tuple[str, ...]:
    head = f"  {number}. {suspect.words}: {signed_seconds(suspect.seconds)}, {100 * suspect.share:.0f} % of the difference"
    return (head, f"     To test it: {suspect.test}", f"     {suspect_command(suspect)}")
