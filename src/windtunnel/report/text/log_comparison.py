"""A run of which only a log is there, against its prediction: the log's own figures, suspects, and how to learn more."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from windtunnel.base.units import show_size
from windtunnel.report.text.measured_seconds import signed_seconds
from windtunnel.report.words import numbers as say
from windtunnel.runs.comparison import RunComparison
from windtunnel.runs.log_facts import APART, DRIFT, LogFacts
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
    for name, measured, expected, show in (
        ("tokens a step", log.tokens, log.expected_tokens, say.count),
        ("model TFLOP/s of a GPU", log.tflops, log.expected_tflops, lambda value: f"{value:.1f}"),
        ("memory of the fullest GPU", log.memory, log.expected_memory, show_size),
    ):
        if math.isfinite(measured) and math.isfinite(expected) and expected > 0.0:
            table.add_row(name, show(measured), show(expected), f"{measured / expected - 1.0:+.1%}")
    if table.row_count:
        console.print()
        console.print(table)
    if math.isfinite(log.tokens) and abs(log.tokens / log.expected_tokens - 1.0) > APART:
        console.print(
            "The log's steps have another number of tokens: set plan.global_batch and plan.seq to the run's.", highlight=False
        )

    if math.isfinite(log.flops) and abs(log.flops - 1.0) > APART:
        console.print(
            f"By its own TFLOP/s the log's step has {log.flops:.2f} times the FLOP of the job's: another model, batch or sequence, "
            "or another count (causal attention is half of full attention).",
            highlight=False,
        )


def _print_course(log: LogFacts, console: Console) -> None:
    lines = []
    if (peaks := log.peaks) is not None:
        every = f"every {peaks.every} steps" if peaks.every else f"{peaks.count} times, at no regular distance"
        what = (
            "a checkpoint, an evaluation or garbage collection that all ranks wait for"
            if peaks.every
            else "a rank, a link or storage that hangs for a while"
        )
        lines.append(f"  {every.capitalize()} a step takes {signed_seconds(peaks.seconds)}: {what}. {peaks.share:.1%} of all time.")
    if math.isfinite(log.drift) and abs(log.drift - 1.0) > DRIFT:
        way = "longer" if log.drift > 1.0 else "shorter"
        slower, faster = "clocks that fall with heat, memory that fragments, longer sequences", "a warm-up, experts that balance"
        why = slower if log.drift > 1.0 else faster
        lines.append(f"  The last quarter of the steps is {abs(log.drift - 1.0):.1%} {way} than the first: {why}.")
    if lines:
        console.print()
        console.print("[bold]Over the run[/]")
        for line in lines:
            console.print(line, markup=False, highlight=False)


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
    sets = " ".join(_as_typed(text) for text in suspect.sets)
    return (head, f"     To test it: {suspect.test}", f"     windtunnel predict JOB {sets}")


def _as_typed(text: str) -> str:
    return f"--set '{text}'" if any(sign in text for sign in "[]{} ") else f"--set {text}"
