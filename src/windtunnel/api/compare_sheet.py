"""What `compare` shows of two jobs: both steps as bars on one scale, what changed and by how much, the fields that differ."""

from __future__ import annotations

from windtunnel.api.comparison import FIGURES, Comparison
from windtunnel.predict.category import StepGroup
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.sheet.evidence import bias_sentence
from windtunnel.predict.sheet.job import describe_job, fields_part, say_field
from windtunnel.predict.sheet.parts import COLOUR, group_sums, label_of
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
from windtunnel.sheet.sentence import Sentence, join, quote

MOST_PARTS, MOST_FIELDS = 16, 14
"""Parts that are drawn, those that differ most first, and fields in the terminal."""
SMALL = 1e-3
"""Share of a step below which a difference is not drawn."""


def compare_sheet(comparison: Comparison) -> Sheet:
    """What `compare` shows of two jobs."""
    a, b = comparison.a, comparison.b
    first, second = (say.clean(side.job.name) for side in (a, b))
    title = Sentence("{job} with and without changes", job=first)
    if first != second:
        title = Sentence("{one} and {other}", one=quote(first), other=quote(second))
    short = [name for name, side in (("A", a), ("B", b)) if not side.fits]
    unfit = Lines((_does_not_fit(short),), mood="bad")
    return Sheet(
        title,
        "",
        _figures(comparison),
        (
            Section("", (Lines(("", *(_named_cell(comparison, side) for side in (0, 1)), "", verdict(comparison))),)),
            Section("Both steps", _steps(comparison)),
            Section("Fields that differ", _fields(comparison)),
            Section("Figures", (_table_of_figures(comparison),)),
            Section("Where the time goes", _changes(comparison)),
            Section("Memory", (unfit,) if short else ()),
            Section("The jobs", (fields_part(a.job, "fields-a", "A:"), fields_part(b.job, "fields-b", "B:"))),
        ),
        tuple(_about(comparison, side) for side in (0, 1)),
        titled=True,
    )


def _does_not_fit(names: list[str]) -> Sentence:
    if len(names) > 1:
        return Sentence("A and B do not fit in memory.")
    return Sentence("{job} does not fit in memory.", job="".join(names))


def _told_apart(comparison: Comparison, side: int) -> str:
    """The first fields that differ, if both jobs have the same name."""
    if comparison.a.job.name != comparison.b.job.name or not comparison.fields:
        return ""
    first = [f"{path} {say_field(values[side])}" for path, values in list(comparison.fields.items())[:2]]
    return Sentence("with {fields}", fields=", ".join(first) + (", …" if len(comparison.fields) > 2 else ""))


def _named_cell(comparison: Comparison, side: int) -> str:
    job = (comparison.a, comparison.b)[side].job
    name = quote(f"{'AB'[side]}  {say.clean(job.name)}")
    apart = _told_apart(comparison, side)
    return join((name, apart), "  ") if apart else name


def _about(comparison: Comparison, side: int) -> str:
    job = (comparison.a, comparison.b)[side].job
    name = quote(f"{'AB'[side]}: {say.clean(job.name)}")
    apart = _told_apart(comparison, side)
    return join((join((name, apart), "  ") if apart else name, describe_job(job)[0]), ": ")


def verdict(comparison: Comparison) -> str:
    """One sentence: which is faster per token, by how much, and the largest cause of the difference."""
    a, b = comparison.a, comparison.b
    ratio = b.tokens_per_s / a.tokens_per_s if a.tokens_per_s else 1.0
    if abs(ratio - 1.0) < 5e-4:
        return Sentence("Both make the same number of tokens a second, within 0.05 %.")
    faster, factor = ("B", ratio) if ratio > 1.0 else ("A", 1.0 / ratio)
    said = Sentence("{job} makes {share} more tokens a second", job=faster, share=say.percent(factor - 1.0))
    moved = sorted(comparison.parts.items(), key=lambda pair: -abs(pair[1][1] - pair[1][0]))
    if moved and a.job.plan.global_batch * a.job.plan.seq == b.job.plan.global_batch * b.job.plan.seq:
        key, (x, y) = moved[0]
        text = "{said}; the largest difference is {part}: {first} in A, {second} in B."
        return Sentence(text, said=said, part=Sentence(label_of(key)), first=say.seconds(x), second=say.seconds(y))
    return Sentence("{said}.", said=said)


def _figures(comparison: Comparison) -> tuple[Figure, ...]:
    a, b = comparison.a, comparison.b
    ratio = b.step_time_s / a.step_time_s if a.step_time_s else 1.0
    rate = b.tokens_per_s / a.tokens_per_s if a.tokens_per_s else 1.0
    mood = "" if abs(rate - 1.0) < 5e-4 else "good" if rate > 1.0 else "bad"
    figures = [
        Figure("a.step_time_s", "step of A", a.step_time_s, "s", a.relative_error),
        Figure("b.step_time_s", "step of B", b.step_time_s, "s", b.relative_error),
        Figure("figures.step_time_s", "step, B beside A", ratio, "%", None, f"{100 * (ratio - 1.0):+.1f} %"),
        Figure("figures.tokens_per_s", "tokens/s, B beside A", rate, "%", None, f"{100 * (rate - 1.0):+.1f} %", mood),
        _mfu("A", a),
        _mfu("B", b),
    ]
    for name, side in (("A", a), ("B", b)):
        if side.cost is not None:
            label = Sentence("cost of the run of {job}", job=name)
            within = say.dollars_within(side.cost, side.relative_error)
            figures.append(Figure(f"{name.lower()}.cost", label, side.cost, "$", side.relative_error, within=within))
        if not side.fits:
            words = Sentence("does not fit")
            figures.append(Figure(f"{name.lower()}.fits", Sentence("memory of {job}", job=name), words, mood="bad"))
    return tuple(figures)


def _mfu(name: str, side: Prediction) -> Figure:
    within = f"{100.0 * side.mfu:.1f} ±{100.0 * side.mfu * side.relative_error:.1f} %"
    label = Sentence("MFU of {job}", job=name)
    return Figure(f"{name.lower()}.mfu", label, side.mfu, "%", None, say.percent(side.mfu), within=within)


def _steps(comparison: Comparison) -> tuple[Block, ...]:
    """The two steps on one scale of seconds, group by group."""
    sides = (("A", comparison.a), ("B", comparison.b))
    sums = [group_sums(side.breakdown) for _, side in sides]
    groups = [group for group in StepGroup if any(group in of for of in sums)]
    stacks = tuple(
        Stack(name, tuple(of.get(group, 0.0) for group in groups), said=_time(side))
        for (name, side), of in zip(sides, sums, strict=True)
    )
    layers = tuple(Layer(str(group), COLOUR[group]) for group in groups)
    a, b = comparison.a, comparison.b
    most = max(a.relative_error, b.relative_error)
    lines = [verdict(comparison), within_errors(a.step_time_s, b.step_time_s, most)]
    for name, side in sides:
        if bias := bias_sentence(side):
            lines.append(Sentence("{job}: {said}", job=name, said=bias))
    drawn = Stacks("both steps, group by group", "", layers, stacks, "s", (1.0, "s"), detail=True)
    return (Lines(tuple(lines), detail=True), drawn)


def _time(side: Prediction) -> str:
    return quote(say.seconds(side.step_time_s) + say.error_words(side.relative_error))


def within_errors(first_s: float, second_s: float, most: float) -> Sentence:
    """How the difference of two steps relates to `most`, the larger of their relative errors, most of which both share."""
    apart = abs(second_s / first_s - 1.0) if first_s else 0.0
    text = "The steps differ by {share}, more than either is uncertain by (±{error} %)."
    if apart <= most:
        text = (
            "The steps differ by {share}, less than ±{error} %, by which each is uncertain alone. Most of that error is common to "
            "both, where they share GPU and framework: their order is surer than their times."
        )
    return Sentence(text, share=say.percent(apart), error=f"{100 * most:.0f}")


def _changes(comparison: Comparison) -> tuple[Block, ...]:
    """Seconds that B takes less (right) or more (left), part by part, and all parts as a table."""
    step = max(comparison.a.step_time_s, comparison.b.step_time_s)
    moved = sorted(comparison.parts.items(), key=lambda pair: -abs(pair[1][1] - pair[1][0]))
    changes = tuple(
        Change(
            Sentence(label_of(key)), (x - y,), (quote(say.signed_seconds(y - x)),),
            Sentence(
                "{part}: {first} in A, {second} in B",
                part=Sentence(label_of(key)), first=say.seconds(x), second=say.seconds(y),
            ),
        )
        for key, (x, y) in moved
        if abs(y - x) >= SMALL * step
    )[:MOST_PARTS]  # fmt: skip
    rows = []
    for key, (x, y) in moved:
        same = abs(y - x) < 1e-6 * max(x, y)  # rounding, not a difference
        told = "=" if same or x == y else f"{'+' if y > x else '-'}{say.seconds(abs(y - x))}"
        times = (Cell(say.seconds(y if same else x), x), Cell(say.seconds(y), y))
        rows.append((Cell(Sentence(label_of(key))), *times, Cell(told, 0.0 if same else y - x)))
    table = Table("parts", (Column(""), *(Column(head, True) for head in ("A", "B", "difference"))), tuple(rows))
    if not changes:
        return (Lines(("No part differs by a thousandth of the step.",), detail=True), table)
    about = "Blue, to the right: B takes less time than A. Orange, to the left: B takes more."
    return (Tornado("seconds that B takes less or more, part by part", changes, about, detail=True), table)


def _table_of_figures(comparison: Comparison) -> Table:
    rows = []
    for name, (x, y) in comparison.figures.items():
        figure, ratio = FIGURES[name], y / x if x else float("nan")
        told = "" if not abs(ratio - 1.0) > 5e-4 else "better" if (ratio > 1.0) == figure.more else "worse"
        cells = (Cell(figure.write(x), x), Cell(figure.write(y), y), Cell(f"{ratio:.3f}", ratio if ratio == ratio else None))
        rows.append((Cell(Sentence(figure.label)), *cells, Cell(Sentence(told) if told else "")))
    columns = (Column(""), *(Column(head, True) for head in ("A", "B", "B / A")), Column("B is", left_out="terminal"))
    return Table("figures", columns, tuple(rows))


def _fields(comparison: Comparison) -> tuple[Block, ...]:
    if not comparison.fields:
        return (Lines(("Both jobs are the same.",), detail=True),)
    rows = tuple((Cell(quote(path)), Cell(say_field(x)), Cell(say_field(y))) for path, (x, y) in comparison.fields.items())
    columns = (Column(""), Column("A", wraps=True), Column("B", wraps=True))
    return (Table("differ", columns, rows, most=MOST_FIELDS, rest="and {count} more"),)
