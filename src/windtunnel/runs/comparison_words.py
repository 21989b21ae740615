"""A measured run beside the prediction of its job in words: the step, what stays unexplained, what a log says of itself."""

from __future__ import annotations

import math

from windtunnel.base.units import show_size
from windtunnel.runs.comparison import RunComparison
from windtunnel.runs.log_facts import APART, DRIFT, LogFacts
from windtunnel.runs.suspects import SuspectedCause
from windtunnel.sheet import numbers as say
from windtunnel.sheet.numbers import measured_seconds as seconds
from windtunnel.sheet.numbers import signed_seconds
from windtunnel.sheet.sentence import Sentence

_ALIKE = 3.0
"""Times by which a step and its prediction may differ before they are likely of two jobs. Assumed."""


def step_lines(comparison: RunComparison) -> list[str]:
    """The measured step and the expected one, the first line, and what to think of the difference."""
    measured, expected = comparison.measured_step, comparison.expected_step
    if not comparison.steps:
        return [Sentence("The run tells no step's time. We expect {time}.", time=seconds(expected))]
    over, log = measured / expected - 1.0, comparison.log
    update = log.update if log is not None else None
    what = Sentence("step" if update is None else "update of the policy")
    lines: list[str] = [
        Sentence(
            "Your {what} takes {time} (median of {steps}, ±{spread}); we expect {expected}: {over}.",
            what=what, time=seconds(measured),
            steps=comparison.steps, spread=seconds(comparison.step_spread), expected=seconds(expected), over=f"{over:+.1%}",
        )
    ]  # fmt: skip
    if update is not None:
        lines.append(Sentence("A step of reinforcement learning is longer: {part} is its part that the job is.", part=update[0]))
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
    words = Sentence("The prediction is good to ±{error} % (one sigma)", error=f"{100 * error:.0f}")
    if abs(over) <= error:
        return Sentence("{words}: the difference is inside, and may be the prediction's.", words=words)
    return Sentence("{words}: the difference is {times} times that.", words=words, times=f"{abs(over) / error:.1f}")


def unexplained_lines(comparison: RunComparison) -> list[str]:
    """What stays when all factors are taken, and calls that only one of both has."""
    rest = comparison.measured_step - comparison.explained_step
    template = "With all factors we would expect {time}; {rest} stays unexplained."
    lines: list[str] = [Sentence(template, time=seconds(comparison.explained_step), rest=signed_seconds(rest))]
    if comparison.fit is not None:
        factors = comparison.fit.factors
        for words, calls in (("Expected, not in the run", factors.missing), ("In the run, not expected", factors.extra)):
            lines += [
                Sentence("{what}: {call} over {axis}, {time} a step.", what=Sentence(words), call=key.comm.name.lower(),
                         axis=key.axis, time=seconds(took))
                for key, took in calls[:2]
            ]  # fmt: skip
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
    lines: list[str] = []
    if math.isfinite(log.tokens) and abs(log.tokens / log.expected_tokens - 1.0) > APART:
        lines.append("The log's steps have another number of tokens: set plan.global_batch and plan.seq to the run's.")
    if math.isfinite(log.flops) and abs(log.flops - 1.0) > APART:
        lines.append(
            Sentence(
                "By its own TFLOP/s the log's step has {times} times the FLOP of the job's: another model, batch or sequence, or "
                "another count (causal attention is half of full attention).", times=f"{log.flops:.2f}",
            )
        )  # fmt: skip
    return lines


def course_lines(log: LogFacts) -> list[str]:
    """Peaks and drift over a run."""
    lines: list[str] = []
    if (peaks := log.peaks) is not None:
        every = Sentence("{count} times, at no regular distance", count=peaks.count)
        if peaks.every:
            every = Sentence("Every {count} steps", count=peaks.every)
        what = Sentence(
            "a checkpoint, an evaluation or garbage collection that all ranks wait for"
            if peaks.every
            else "a rank, a link or storage that hangs for a while"
        )
        template = "{every} a step takes {time}: {what}. {share} of all time."
        lines.append(Sentence(template, every=every, time=signed_seconds(peaks.seconds), what=what, share=f"{peaks.share:.1%}"))
    if math.isfinite(log.drift) and abs(log.drift - 1.0) > DRIFT:
        way = Sentence("longer" if log.drift > 1.0 else "shorter")
        slower, faster = "clocks that fall with heat, memory that fragments, longer sequences", "a warm-up, experts that balance"
        why = Sentence(slower if log.drift > 1.0 else faster)
        template = "The last quarter of the steps is {share} {way} than the first: {why}."
        lines.append(Sentence(template, share=f"{abs(log.drift - 1.0):.1%}", way=way, why=why))
    return lines


def suspect_command(suspect: SuspectedCause) -> str:
    """The command that shows the whole step with a suspect."""
    return f"windtunnel predict JOB {' '.join(_as_typed(text) for text in suspect.sets)}"


def _as_typed(text: str) -> str:
    return f"--set '{text}'" if any(sign in text for sign in "[]{} ") else f"--set {text}"
