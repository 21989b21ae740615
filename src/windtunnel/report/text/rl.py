"""A step of reinforcement learning in the terminal: headline, phases, who waits, memory, money."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.base.errors import WindtunnelError
from windtunnel.report.words.served_record import step_sentences
from windtunnel.rl import RLJob, RLStep
from windtunnel.rl.phases import StepTiming
from windtunnel.sheet import numbers as say

WIDTH = 24
GB = 1e9


def report(step: RLStep, console: Console | None = None) -> None:
    """Print the whole report."""
    out = console or Console()
    whole, rollout = step.rl_job, step.rollout
    rl, gpus = whole.rl, whole.job.cluster.gpus
    rate = step.tokens / step.step_time_s / gpus
    seconds = _seconds(step.step_time_s) + say.error_words(step.relative_error)
    out.print(
        Text(
            f"{whole.model.name}, {rl.algorithm}, {rl.mode}: {seconds} a step, {rate:,.0f} tokens/s a GPU",
            "bold",
        )
    )
    where = f"{gpus} x {whole.job.cluster.gpu.name}"
    if rl.mode != "colocated":
        where += f": {whole.rollout_gpus} for rollout, {whole.train_gpus} for the update"
    degrees = " x ".join(
        f"{name} {getattr(rollout.plan, name)}" for name in ("tp", "dp", "pp", "ep") if getattr(rollout.plan, name) > 1
    )
    out.print(f"  {where}; {rl.rollout.engine}: {say.count_words(rollout.copies, 'copy')} of {degrees or 'one GPU'}")
    if rl.rollout.speculate is not None:
        out.print(f"  drafts    {rl.rollout.speculate}", highlight=False)
    mean = f"{rollout.mean:,.0f} tokens, the longest {rollout.longest:,}"
    cut = f", {100 * rollout.capped:.2g} % cut there" if rollout.capped else ""
    samples = f"{say.count_words(rl.prompts, 'prompt')} x {say.count_words(rl.samples, 'response')}"
    out.print(f"  {samples} of {mean}{cut}; {say.count_words(step.updates, 'update')}")
    out.print(_phases(step))
    for line in step.waits:
        out.print(f"  waits     {line}")
    for one in step.memory:
        parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in one.parts.items() if size > 0.05 * GB)
        verdict = "" if one.fits else "  does not fit"
        out.print(
            f"  memory    {one.phase}: {one.total / GB:.1f} of {one.capacity / GB:.1f} GB a GPU ({parts}){verdict}", highlight=False
        )
    if step.dollars is not None:
        joules = "" if step.joules is None else f", {step.joules / 1e6:,.3g} MJ"
        out.print(f"  price     ${step.dollars:.3g}{say.error_words(step.relative_error)}{joules} a step")
    for sentence in step_sentences(step):
        out.print(f"  record    {sentence}", highlight=False)
    for line in step.warnings:
        out.print(Text(f"  warning   {line}", "yellow"))
    for line in step.notes:
        out.print(f"  assumed   {line}")


def _phases(step: RLStep) -> Table:
    """Seconds of the phases, each with a bar of when it runs; what a run measured stands beside."""
    measured = dict(step.rl_job.measured)
    table = Table(box=None, padding=(0, 1), show_edge=False)
    table.add_column("phase", no_wrap=True)
    for name in ("predicted", "%", *(("measured",) if measured else ())):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("when", no_wrap=True)
    spans = {span.name: (span.start, span.end) for span in step.timing.spans}
    for phase in step.timing.phases:
        row = [phase.name, _seconds(phase.seconds), f"{100 * phase.seconds / step.step_time_s:.0f}"]
        row += [_seconds(measured[phase.name]) if phase.name in measured else ""] if measured else []
        table.add_row(*row, _bar(spans.get(phase.name), step.timing))
    row = ["step", _seconds(step.step_time_s), ""]
    table.add_row(*row, *([_seconds(measured["step"]) if "step" in measured else ""] if measured else []), "", style="bold")
    return table


def _bar(span: tuple[float, float] | None, timing: StepTiming) -> str:
    if span is None:
        return ""
    begin, end = (round(WIDTH * min(max(at / timing.seconds, 0.0), 1.0)) for at in span)
    return " " * min(begin, WIDTH - 1) + "█" * max(1, end - begin)


def report_splits(tried: Sequence[tuple[RLJob, RLStep | WindtunnelError]], console: Console | None = None) -> None:
    """A table of divisions of the GPUs into rollout and update, the fastest first."""
    out = console or Console()
    first = tried[0][0]
    error = next((say.error_words(step.relative_error) for _, step in tried if isinstance(step, RLStep)), "")
    where = f"{first.model.name}, {first.rl.algorithm}, {first.rl.mode} on {first.job.cluster.gpus} GPUs"
    out.print(Text(where + (f"; steps{error}" if error else ""), "bold"))
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for name in ("rollout", "update", "step", "rollout busy", "update busy", "$ a step", ""):
        table.add_column(name, justify="left" if not name else "right")
    for one, step in tried:
        counts = (str(one.rollout_gpus), str(one.train_gpus))
        if not isinstance(step, RLStep):
            table.add_row(*counts, "-", "-", "-", "-", str(step))
            continue
        busy = [f"{100 * share:.0f} %" for share in (step.timing.rollout_busy, step.timing.train_busy)]
        dollars = "-" if step.dollars is None else f"{step.dollars:.3g}"
        table.add_row(*counts, _seconds(step.step_time_s), *busy, dollars, "" if step.fits else f"{_unfit(step)} does not fit")
    out.print(table)


def _unfit(step: RLStep) -> str:
    return ", ".join(one.phase for one in step.memory if not one.fits)


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 1000.0 else f"{value:.3g} s"
