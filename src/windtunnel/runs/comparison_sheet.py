"""What a measured run beside the prediction of its job shows: both steps as bars, causes with their price, parts, calls, ranks; of
a log what it says of itself, suspects, and how to learn more.

How each framework records traces of two or three steps, which say where the time goes.

A measured run beside the prediction of its job in words: the step, what stays unexplained, what a log says of itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from windtunnel.base.units import show_size
from windtunnel.predict.sheet.job import describe_job, fields_part
from windtunnel.runs.comparison import MOST_CAUSES as MOST_TOLD
from windtunnel.runs.comparison import CallPart, RankPart, RunComparison
from windtunnel.runs.log_facts import APART, DRIFT, LogFacts
from windtunnel.runs.report_sheet import BY_NAME, broken_section
from windtunnel.runs.suspects import SuspectedCause
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Block,
    Cell,
    Change,
    Column,
    Figure,
    Layer,
    Lines,
    Section,
    Sheet,
    Stack,
    Stacks,
    Table,
    Tornado,
)
from windtunnel.sheet.colours import BLUE, GREEN, GREY
from windtunnel.sheet.numbers import measured_seconds as seconds
from windtunnel.sheet.numbers import signed_seconds
from windtunnel.sheet.sentence import Sentence, quote

MOST_ROWS, MOST_CAUSES, HIDDEN = 200, 12, "hidden communication"
ROWS_IN_TERMINAL, SUSPECTS_IN_TERMINAL = 8, 6
CLASSES = (BLUE, "#5b4b8a", GREEN, "#1e6091", "#2a9d8f", "#6a994e", "#3d5a80", "#457b9d", "#7b6d8d", "#588157")
"""Colours of kernel classes, in the order of their seconds."""
RECORD = "Step times do not say where the time goes. To see it, record traces of two steps, and compare those:"


def comparison_sheet(comparison: RunComparison, broken: Sequence[str] = ()) -> Sheet:
    """What `compare RUN JOB` shows. `broken`: what of the run could not be read."""
    headline, *others = step_lines(comparison)
    traced, log = comparison.fit is not None, comparison.log
    behind = (*_causes_told(comparison), *_parts_told(comparison)) if traced else _log_told(comparison)
    return Sheet(
        Sentence("A run of {job} and what we expect", job=say.clean(comparison.job.name)), headline, _figures(comparison),
        (
            Section("", (*((Lines(tuple(others), brief=True),) if others else ()), *behind)),
            *broken_section(broken),
            Section("The step", (Lines(tuple(step_lines(comparison)), detail=True), _bars(comparison))),
            Section("Largest causes", _causes(comparison) if traced else ()),
            Section("What the log says", _log(log) if log is not None else ()),
            Section("Suspects, likeliest first", _suspects(comparison) if comparison.suspects else ()),
            Section("To see where the time goes", () if traced else (
                Lines((RECORD, quote(recording_hint(comparison.job.runtime.framework))), detail=True),
                Lines((quote("windtunnel compare traces/*.json JOB"),), mood="code", detail=True))),
            Section("Parts of a step, mean over ranks", (_parts(comparison),) if comparison.parts else ()),
            Section("Calls", (_calls(comparison),) if comparison.calls else ()),
            Section("Ranks", (_ranks(comparison),) if comparison.ranks else ()),
            Section("The job", (fields_part(comparison.job),)),
        ),
        describe_job(comparison.job), titled=True,
    )  # fmt: skip


def _figures(comparison: RunComparison) -> tuple[Figure, ...]:
    expected, error, measured = comparison.expected_step, comparison.relative_error, comparison.measured_step
    figures = [Figure("expected_step_s", "expected step", expected, "s", error)]
    if comparison.steps:
        over = measured / expected - 1.0
        inside = abs(over) <= error
        explains = Sentence("explains it" if inside else "explains {share} of it", share=f"{error / (abs(over) or 1.0):.0%}")
        label = Sentence("measured step, of {count}", count=f"{comparison.steps:,}")
        figures = [
            Figure("measured_step_s", label, measured, "s measured", None,
                   quote(f"{seconds(measured)} ±{seconds(comparison.step_spread)}")),
            *figures,
            Figure("parts.over", "measured beside expected", over, "%", None, f"{100 * over:+.1f} %",
                   "" if inside else "bad" if over > 0.0 else "good"),
            Figure("relative_error", "the prediction's error", error, "%", None, explains),
        ]  # fmt: skip
    if comparison.fit is not None:
        rest = measured - comparison.explained_step
        figures.append(Figure("explained_step_s", "stays unexplained", rest, "s measured", None, quote(signed_seconds(rest))))
    return tuple(figures)


def _bars(comparison: RunComparison) -> Stacks:
    """Measured and expected on one scale; their parts where the run has traces."""
    classes = [part.name for part in comparison.parts if part.name not in BY_NAME]
    colours = BY_NAME | {name: CLASSES[number % len(CLASSES)] for number, name in enumerate(classes)}
    steps = {"measured": comparison.measured_step, "expected": comparison.expected_step}
    shown = {name: step for name, step in steps.items() if step == step}
    parts = [part for part in comparison.parts if part.name != HIDDEN]
    layers = tuple(Layer(part.name, colours[part.name]) for part in parts)
    values = {name: tuple(getattr(part, name) for part in parts) for name in shown}
    if not parts:
        layers = tuple(Layer(name, BLUE if name == "measured" else GREY) for name in shown)
        values = {name: tuple(step if name == other else 0.0 for other in shown) for name, step in shown.items()}
    stacks = tuple(Stack(name, values[name], said=quote(seconds(step))) for name, step in shown.items())
    scale = (1e-3, "ms")
    return Stacks("the measured and the expected step", "step", layers, stacks, "s measured", scale, detail=True)


def _causes(comparison: RunComparison) -> tuple[Block, ...]:
    """What the predicted step grows by with each factor alone, and how to test each."""
    causes, rest = comparison.causes[:MOST_CAUSES], Lines(tuple(unexplained_lines(comparison)), detail=True)
    if not causes:
        return (Lines(("None: every factor is within its error of 1.",), detail=True), rest)
    changes = tuple(
        Change(quote(cause.words), (-cause.seconds,), (quote(signed_seconds(cause.seconds)),),
               quote(f"{cause.words}: {signed_seconds(cause.seconds)}"))
        for cause in causes
    )  # fmt: skip
    rows = tuple(
        (Cell(cause.words), Cell(f"{cause.factor:.3f}", cause.factor), Cell(signed_seconds(cause.seconds), cause.seconds),
         Cell(cause.test))
        for cause in causes
    )  # fmt: skip
    columns = (Column("cause"), Column("factor", True), Column("the step grows by", True), Column("to test it"))
    about = "Orange, to the left: the run is slower for it than we expect. Blue, to the right: faster."
    return (
        Tornado("seconds of each cause", changes, detail=True), Lines((about,), mood="soft", detail=True),
        Table("causes", columns, rows, detail=True), rest,
    )  # fmt: skip


def _causes_told(comparison: RunComparison) -> tuple[Block, ...]:
    """The largest causes in the terminal."""
    lines: list[str] = ["", "Largest causes (what the predicted step grows by with each alone)"]
    causes = comparison.causes[:MOST_TOLD]
    if not causes:
        lines.append("  none: every factor is within its error of 1")
    for number, cause in enumerate(causes, start=1):
        template = "  {number}. {cause}: {time}"
        lines.append(Sentence(template, number=number, cause=cause.words, time=signed_seconds(cause.seconds)))
        lines.append(Sentence("     To test it: {test}.", test=cause.test))
    lines += [Sentence("  {line}", line=line) for line in unexplained_lines(comparison)]
    return (Lines(tuple(lines), brief=True),)


def _parts_told(comparison: RunComparison) -> tuple[Block, ...]:
    """Parts, calls and ranks in the terminal."""
    rows = [
        [part.name, seconds(part.measured), seconds(part.expected), signed_seconds(part.measured - part.expected)]
        for part in comparison.parts
        if max(part.measured, part.expected) > 1e-4 * comparison.measured_step
    ]
    tables = [_terminal_table("parts_told", ("part of a step, mean over ranks", "measured", "expected", "difference"), rows)]
    if comparison.calls:
        rows = [
            [row.comm, row.axis, "-" if row.bytes < 0 else f"{row.bytes:,.0f}", _count(row.measured_count),
             _count(row.expected_count), seconds(row.measured_each), seconds(row.expected_each)]
            for row in comparison.calls[:ROWS_IN_TERMINAL]
        ]  # fmt: skip
        tables.append(_terminal_table("calls_told", ("call", "over", "bytes", "count", "expected", "one takes", "expected"), rows))
    if len(comparison.ranks) >= 2:
        rows = [
            [str(row.rank), str(row.stage), *map(seconds, (row.compute, row.expected_compute, row.kept_waiting, row.waited))]
            for row in _waiting(comparison)[:ROWS_IN_TERMINAL]
        ]
        tables.append(
            _terminal_table("ranks_told", ("rank", "stage", "kernels", "expected", "others waited for it", "it waited"), rows)
        )
    return tuple(tables)


def _terminal_table(key: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of the terminal, whose first column and the one of an axis are words."""
    columns = tuple(
        Column(head, number > 0 and head not in ("over", "the whole step with it")) for number, head in enumerate(heads)
    )
    return Table(key, columns, tuple(tuple(map(Cell, row)) for row in rows), brief=True)


def _count(count: float) -> str:
    return f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"


def _waiting(comparison: RunComparison) -> list[RankPart]:
    return sorted(comparison.ranks, key=lambda row: -row.kept_waiting)


def _contradictions(log: LogFacts) -> list[Sentence]:
    template = "{name}: {theirs} in the log, {ours} in the job"
    return [Sentence(template, name=name, theirs=theirs, ours=ours) for name, theirs, ours in log.contradictions]


def _log_table(log: LogFacts, brief: bool = False) -> tuple[Table, ...]:
    rows = tuple(tuple(map(Cell, row)) for row in log_figures(log))
    columns = tuple(Column(head, brief and head != "logged") for head in ("logged", "measured", "expected", "difference"))
    return (Table("logged", columns, rows, brief=brief, detail=not brief),) if rows else ()


def _log(log: LogFacts) -> tuple[Block, ...]:
    others = _contradictions(log)
    head = "The log is of another job than the one it is compared with:"
    warned = (Lines((head, *others), mood="warn", listed=True, detail=True),) if others else ()
    said = (*course_lines(log), *log_doubts(log))
    return (*_log_table(log), *((Lines(said, listed=True, detail=True),) if said else ()), *warned)


def _log_told(comparison: RunComparison) -> tuple[Block, ...]:
    """What the log says of itself, the suspects, and how to record traces, in the terminal."""
    blocks: list[Block] = []
    if (log := comparison.log) is not None:
        if others := _contradictions(log):
            head = "The log is of another job than the one it is compared with:"
            blocks.append(Lines(("", head, *(Sentence("  {line}", line=line) for line in others)), brief=True))
        blocks += _log_table(log, True)
        if doubts := log_doubts(log):
            blocks.append(Lines(tuple(doubts), brief=True))
        if course := course_lines(log):
            blocks.append(Lines(("", "Over the run", *(Sentence("  {line}", line=line) for line in course)), brief=True))
    if comparison.suspects:
        head = "Suspects, likeliest first, each alone in the prediction; the command shows the whole step with it."
        lines: list[str] = ["", head]
        for number, suspect in enumerate(comparison.suspects[:SUSPECTS_IN_TERMINAL], start=1):
            lines += [
                Sentence("  {number}. {suspect}: {time}, {share} % of the difference", number=number, suspect=suspect.words,
                         time=signed_seconds(suspect.seconds), share=f"{100 * suspect.share:.0f}"),
                Sentence("     To test it: {test}", test=suspect.test),
                quote(f"     {suspect_command(suspect)}"),
            ]  # fmt: skip
        blocks.append(Lines(tuple(lines), brief=True))
    hint = quote(f"  {recording_hint(comparison.job.runtime.framework)}")
    blocks.append(Lines(("", RECORD, hint, quote("  windtunnel compare traces/*.json JOB")), brief=True))
    return tuple(blocks)


def _suspects(comparison: RunComparison) -> tuple[Block, ...]:
    """Each suspect alone in the prediction, beside the difference that is to be explained."""
    changes = tuple(
        Change(quote(suspect.words), (-suspect.seconds,),
               (quote(f"{signed_seconds(suspect.seconds)}, {100 * suspect.share:.0f} %"),), quote(suspect.test))
        for suspect in comparison.suspects[:MOST_CAUSES]
    )  # fmt: skip
    rows = tuple(
        (Cell(suspect.words), Cell(signed_seconds(suspect.seconds), suspect.seconds),
         Cell(f"{100 * suspect.share:.0f} %", suspect.share), Cell(suspect.test), Cell(suspect_command(suspect)))
        for suspect in comparison.suspects
    )  # fmt: skip
    columns = (Column("suspect"), Column("the step grows by", True), Column("of the difference", True), Column("to test it"),
               Column("the whole step with it"))  # fmt: skip
    return (Tornado("seconds of each suspect", changes, detail=True), Table("suspects", columns, rows, detail=True))


def _parts(comparison: RunComparison) -> Table:
    rows = tuple(
        (Cell(part.name), *(Cell(seconds(value), value) for value in (part.measured, part.expected)),
         Cell(signed_seconds(part.measured - part.expected), part.measured - part.expected))
        for part in comparison.parts
    )  # fmt: skip
    columns = (Column("part"), *(Column(head, True) for head in ("measured", "expected", "difference")))
    return Table("parts", columns, rows, detail=True)


def _calls(comparison: RunComparison) -> Table:
    heads = ("bytes", "count", "count, expected", "one takes", "one takes, expected")
    columns = (Column("call"), Column("over"), *(Column(head, True) for head in heads))
    return Table("calls", columns, tuple(map(_call, comparison.calls[:MOST_ROWS])), detail=True)


def _call(row: CallPart) -> tuple[Cell, ...]:
    counts = (Cell(f"{value:,.1f}", value) if value == value else Cell("-") for value in (row.measured_count, row.expected_count))
    times = (Cell(seconds(value), value) if value == value else Cell("-") for value in (row.measured_each, row.expected_each))
    size = Cell("-") if row.bytes < 0 else Cell(say.size(row.bytes), row.bytes)
    return (Cell(row.comm), Cell(row.axis), size, *counts, *times)


def _ranks(comparison: RunComparison) -> Table:
    rows = tuple(
        (Cell(str(row.rank), float(row.rank)), Cell(str(row.stage), float(row.stage)),
         *(Cell(seconds(value), value) for value in (row.compute, row.expected_compute, row.kept_waiting, row.waited)))
        for row in _waiting(comparison)[:MOST_ROWS]
    )  # fmt: skip
    heads = ("rank", "stage", "kernels", "kernels, expected", "others waited for it", "it waited")
    return Table("ranks", tuple(Column(head, True) for head in heads), rows, detail=True)


_FLAGS = {
    "megatron-core": "--profile --use-pytorch-profiler --profile-step-start 12 --profile-step-end 14 --profile-ranks 0 8 "
    "--tensorboard-dir traces",
    "nemo": "profiling.use_pytorch_profiler=true profiling.profile_step_start=12 profiling.profile_step_end=14 "
    "profiling.profile_ranks=[0,8]",
    "torchtitan": "--profiling.enable_profiling --profiling.profile_freq 12 --profiling.save_traces_folder traces",
    "nanotron": "profiler: {profiler_export_path: traces}",
}
"""Names of megatron/training/arguments.py (Core 0.9 and later), Megatron-Bridge's ProfilingConfig, torchtitan's Profiling and
nanotron's ProfilerArgs."""

_ANY = (
    "with torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=2, repeat=1), record_shapes=True, "
    "on_trace_ready=torch.profiler.tensorboard_trace_handler('traces')) as profiler: around the loop, and profiler.step() after "
    "each step"
)


def recording_hint(framework: str) -> str:
    """What to add to a run of `framework` so that it records traces, as its user types it."""
    return _FLAGS.get(framework, _ANY)


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
