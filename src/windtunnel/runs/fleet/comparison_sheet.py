"""What a watched run beside its prediction, or an earlier run, shows: the step, the causes, the sections and calls behind."""

from __future__ import annotations

from windtunnel.runs.causes import StepCause
from windtunnel.runs.comparison import MOST_CAUSES
from windtunnel.runs.fleet.comparison import FleetComparison, SectionPart
from windtunnel.sheet.blocks import Cell, Change, Column, Figure, Lines, Section, Sheet, Table, Tornado
from windtunnel.sheet.numbers import measured_seconds as seconds
from windtunnel.sheet.sentence import Sentence, quote

MOST_ROWS = 12


def comparison_sheet(comparison: FleetComparison) -> Sheet:
    """What `fleet compare` shows."""
    step, predicted = comparison.step, comparison.predicted
    first = _first_lines(comparison)
    causes = comparison.causes[: 2 * MOST_CAUSES]
    differs = "What differs from the prediction" if predicted else "What differs from the earlier run"
    head = Sentence("{what} (and what each alone adds to a step)", what=Sentence(differs))
    told: list[str] = ["", head]
    if not causes:
        told.append("  nothing: every section and call is within its error bar")
    for number, cause in enumerate(causes, start=1):
        told.append(Sentence("  {number}. {cause}: {time}", number=number, cause=cause.words, time=_signed_seconds(cause.seconds)))
        told.append(Sentence("     To test it: {test}.", test=cause.test))
    rest = Sentence(
        "With all of them we would expect {time}; {rest} stays unexplained.", time=seconds(comparison.explained_step),
        rest=_signed_seconds(step.median - comparison.explained_step),
    )  # fmt: skip
    if causes:
        told.append(Sentence("  {line}", line=rest))
    without = "What the prediction has no expectation for"
    if comparison.apart:
        told += ["", Sentence("{what} (no cause, and in no sum above)", what=Sentence(without))]
    for cause in comparison.apart:
        told.append(Sentence("  {cause}: {time}", cause=cause.words, time=_signed_seconds(cause.seconds)))
        told.append(Sentence("     To judge it: {test}.", test=cause.test))
    changes = tuple(
        Change(quote(one.words), (-one.seconds,), (quote(_signed_seconds(one.seconds)),), quote(one.test)) for one in causes
    )
    return Sheet(
        Sentence("A watched run of {job} and what we expect", job=comparison.job.name), "", _figures(comparison),
        (
            Section("", (Lines((*first, *told), mood="code", brief=True),)),
            Section("The step", (Lines(tuple(first), detail=True),)),
            Section(differs, (
                Tornado("seconds of each cause", changes, detail=True), _causes("causes", causes), Lines((rest,), detail=True),
            ) if causes else (Lines(("Nothing: every section and call is within its error bar.",), detail=True),)),
            Section(without, (_causes("apart", comparison.apart),) if comparison.apart else ()),
            Section("A step's sections, own time of a rank", (_sections(comparison),)),
            Section("Calls, from the entry of their last rank", (_calls(comparison),) if comparison.calls else ()),
        ),
        titled=True,
    )  # fmt: skip


def _first_lines(comparison: FleetComparison) -> list[str]:
    step = comparison.step
    facts = {"time": seconds(step.median), "steps": comparison.steps, "low": seconds(step.low), "high": seconds(step.high),
             "expected": seconds(step.expected), "error": f"{step.error:.0%}", "excess": f"{step.excess:+.1%}"}  # fmt: skip
    line = Sentence(
        "The step takes {time} (median of {steps}; 10 to 90 %: {low} to {high}); we expect {expected} ±{error}: {excess}.", **facts
    )
    if not comparison.predicted:
        template = "The step takes {time} (median of {steps}; 10 to 90 %: {low} to {high}); the earlier run took {expected} "
        line = Sentence(template + "±{error}: {excess}.", **facts)
    if comparison.cores >= 1.0:
        return [line]
    cores = Sentence(
        "Each rank has {cores} of a core: ranks that share cores take turns, and what one works longer costs the others too.",
        cores=f"{comparison.cores:.2g}",
    )
    return [line, cores]


def _figures(comparison: FleetComparison) -> tuple[Figure, ...]:
    step = comparison.step
    label = Sentence("measured step, of {count}", count=f"{comparison.steps:,}")
    known, excess = step.excess == step.excess, f"{step.excess:+.1%}"
    mood = "" if not known or not step.leaves else "bad" if step.excess > 0.0 else "good"
    return (
        Figure("measured_step_s", label, step.median, "s measured"),
        Figure("expected_step_s", "expected step", step.expected, "s measured", step.error),
        Figure("sections.excess", "measured beside expected", step.excess if known else None, "%", None, excess, mood),
    )


def _causes(key: str, causes: tuple[StepCause, ...]) -> Table:
    rows = tuple((Cell(cause.words), Cell(_signed_seconds(cause.seconds), cause.seconds), Cell(cause.test)) for cause in causes)
    return Table(key, (Column("cause"), Column("the step grows by", True), Column("to test it")), rows, detail=True)


def _sections(comparison: FleetComparison) -> Table:
    several = len({part.stage for part in comparison.sections}) > 1
    rows = []
    for part in comparison.sections:
        if max(part.expected, part.high) > 1e-4 * comparison.step.median:
            expected = seconds(part.expected) if part.whole or part.expected else "-"
            error = f"{part.error:.0%}" if part.expected and part.whole else ""
            times = (Cell(seconds(value), value) for value in (part.median, part.low, part.high))
            rows.append(
                (Cell(part.name), Cell(str(part.stage) if several else "", float(part.stage)), Cell(expected, part.expected),
                 Cell(error, part.error), *times, Cell(_verdict(part)))
            )  # fmt: skip
    heads = ("stage", "expected", "±", "median", "10 %", "90 %")
    return Table("sections", (Column("section"), *(Column(head, True) for head in heads), Column("")), tuple(rows))


def _verdict(part: SectionPart) -> str:
    if not part.whole:
        return Sentence("known in part" if part.expected else "no expectation")
    if not part.leaves:
        return Sentence("as expected")
    return f"{part.excess:+.1%}" if part.excess == part.excess else Sentence("not expected")


def _calls(comparison: FleetComparison) -> Table:
    rows = []
    for row in comparison.calls[:MOST_ROWS]:
        size = Cell("-") if row.bytes < 0 else Cell(f"{row.bytes:,.0f}", row.bytes)
        counts = (Cell(_count(value), value) for value in (row.measured_count, row.expected_count))
        times = (Cell(seconds(value), value) for value in (row.median, row.expected_each))
        ends = (Cell(seconds(value), value) for value in (row.low, row.high))
        rows.append((Cell(row.comm), Cell(row.axis), size, *counts, *times, Cell(f"{row.error:.0%}", row.error), *ends))
    heads = ("bytes", "count", "expected", "median", "expected", "±", "10 %", "90 %")
    return Table("calls", (Column("call"), Column("over"), *(Column(head, True) for head in heads)), tuple(rows))


def _count(count: float) -> str:
    return f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"


def _signed_seconds(value: float) -> str:
    return ("+" if value >= 0 else "-") + seconds(abs(value))
