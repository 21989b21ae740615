"""A measured run beside the prediction of its job in words: the step, what stays unexplained, what a log says of itself."""

from __future__ import annotations

import math

from windtunnel.base.units import show_size
from windtunnel.report.words.measured.seconds import seconds, signed_seconds
from windtunnel.runs.comparison import RunComparison
from windtunnel.runs.log_facts import APART, DRIFT, LogFacts
from windtunnel.runs.suspects import SuspectedCause
from windtunnel.sheet import numbers as say

_ALIKE = 3.0
"""Times by which a step and its prediction may differ before they are likely of two jobs. Assumed."""


def step_lines(comparison: RunComparison) -> list[str]:
    """The measured step and the expected one, the first line, and what to think of the difference."""
    measured, expected = comparison.measured_step, comparison.expected_step
    if not comparison.steps:
        return [f"The run tells no step's time. We expect {seconds(expected)}."]
    over, log = measured / expected - 1.0, comparison.log
    update = log.update if log is not None else None
    what = "step" if update is None else "update of the policy"
    lines = [
        f"Your {what} takes {seconds(measured)} (median of {comparison.steps}, ±{seconds(comparison.step_spread)}); "
        f"we expect {seconds(expected)}: {over:+.1%}."
    ]
    if update is not None:
        lines.append(f"A step of reinforcement learning is longer: {update[0]} is its part that the job is.")
    elif log is not None and log.rollouts:
        lines.append(
            "The log is of reinforcement learning: its steps generate text too, the job is the update alone, and the log does not "
            "say how long that takes."
        )
    lines.append(_within_error(over, comparison.relative_error))
    if not 1.0 / _ALIKE < measured / expected < _ALIKE:
        lines.append(
            "So far apart, the run and the job are hardly the same: check the model, its layers, the batch and the number of GPUs."
        )
    return lines


def _within_error(over: float, error: float) -> str:
    """Whether the difference is more than the prediction may be wrong by."""
    words = f"The prediction is good to ±{100 * error:.0f} % (one sigma)"
    if abs(over) <= error:
        return f"{words}: the difference is inside, and may be the prediction's."
    return f"{words}: the difference is {abs(over) / error:.1f} times that."


def unexplained_lines(comparison: RunComparison) -> list[str]:
    """What stays when all factors are taken, and calls that only one of both has."""
    rest = comparison.measured_step - comparison.explained_step
    lines = [f"With all factors we would expect {seconds(comparison.explained_step)}; {signed_seconds(rest)} stays unexplained."]
    if comparison.fit is not None:
        factors = comparison.fit.factors
        for words, calls in (("Expected, not in the run", factors.missing), ("In the run, not expected", factors.extra)):
            lines += [f"{words}: {key.comm.name.lower()} over {key.axis}, {seconds(each)} a step." for key, each in calls[:2]]
    return lines


def log_figures(log: LogFacts) -> list[tuple[str, str, str, str]]:
    """What the log states beside the job's: name, logged, expected, difference."""
    return [
        (name, show(measured), show(expected), f"{measured / expected - 1.0:+.1%}")
        for name, measured, expected, show in (
            ("tokens a step", log.tokens, log.expected_tokens, say.count),
            ("model TFLOP/s of a GPU", log.tflops, log.expected_tflops, lambda value: f"{value:.1f}"),
            ("memory of the fullest GPU", log.memory, log.expected_memory, show_size),
        )
        if math.isfinite(measured) and math.isfinite(expected) and expected > 0.0
    ]


def log_doubts(log: LogFacts) -> list[str]:
    """Why the log may be of other work than the job."""
    lines = []
    if math.isfinite(log.tokens) and abs(log.tokens / log.expected_tokens - 1.0) > APART:
        lines.append("The log's steps have another number of tokens: set plan.global_batch and plan.seq to the run's.")
    if math.isfinite(log.flops) and abs(log.flops - 1.0) > APART:
        lines.append(
            f"By its own TFLOP/s the log's step has {log.flops:.2f} times the FLOP of the job's: another model, batch or sequence, "
            "or another count (causal attention is half of full attention)."
        )
    return lines


def course_lines(log: LogFacts) -> list[str]:
    """Peaks and drift over a run."""
    lines = []
    if (peaks := log.peaks) is not None:
        every = f"every {peaks.every} steps" if peaks.every else f"{peaks.count} times, at no regular distance"
        what = (
            "a checkpoint, an evaluation or garbage collection that all ranks wait for"
            if peaks.every
            else "a rank, a link or storage that hangs for a while"
        )
        lines.append(f"{every.capitalize()} a step takes {signed_seconds(peaks.seconds)}: {what}. {peaks.share:.1%} of all time.")
    if math.isfinite(log.drift) and abs(log.drift - 1.0) > DRIFT:
        way = "longer" if log.drift > 1.0 else "shorter"
        slower, faster = "clocks that fall with heat, memory that fragments, longer sequences", "a warm-up, experts that balance"
        why = slower if log.drift > 1.0 else faster
        lines.append(f"The last quarter of the steps is {abs(log.drift - 1.0):.1%} {way} than the first: {why}.")
    return lines


def suspect_command(suspect: SuspectedCause) -> str:
    """The command that shows the whole step with a suspect."""
    return f"windtunnel predict JOB {' '.join(_as_typed(text) for text in suspect.sets)}"


def _as_typed(text: str) -> str:
    return f"--set '{text}'" if any(sign in text for sign in "[]{} ") else f"--set {text}"
