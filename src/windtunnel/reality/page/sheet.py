"""What a validation shows: predicted against measured as points, errors by family, the largest ones, why rows were skipped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from windtunnel.reality.page.labels import NAMES, UNITS, format_value, label, quantities, shared_gpu
from windtunnel.reality.score.choices import by_family
from windtunnel.reality.score.goodput import NAMES as RUN_QUANTITIES
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import FamilySummary, Score
from windtunnel.records import PHASES
from windtunnel.sheet.blocks import Block, Cell, Column, Curve, Figure, Lines, Mark, Plot, Scale, Section, Sheet, Table
from windtunnel.sheet.colours import COLOURS
from windtunnel.sheet.sentence import Sentence, quote

SHAPES = {"layer": "square", "step": "square", "submodule": "diamond"}
"""First word of a class -> the shape of its points; all others are dots, which lie below."""
MOST_POINTS = 4000
"""Maximum of points in a picture, divided evenly over classes; the caption states the number shown."""
BAND = 0.10
"""Half width of the band around equality."""
MOST_ROWS, MOST_REASONS, WORST = 40, 12, 8
"""Largest errors on pages; reasons and largest errors in the terminal."""
AXES = {"time_us": ("s", 1e-6), "step_time_s": ("s", 1.0)}
"""Quantity -> unit of its axes, and what its values are multiplied with; others stand as they are."""
ERRORS = ("rows", "mean |e|", "median", "bias", "largest", "skipped")


def validation_sheet(report: Report, founding: str = "") -> Sheet:
    """What `validate` shows. `founding`: a line on what the predictions rest on."""
    gpu, named = shared_gpu(report), quantities(report)
    scored = [score for score in report.rows if score.error_pct is not None]
    plots = [_plot_section(quantity, [s for s in scored if s.quantity == quantity]) for quantity in named]
    title = "Predicted against measured"
    return Sheet(
        Sentence("Predicted against measured on {gpu}", gpu=gpu) if gpu else title, quote(gpu), _figures(report, scored),
        (
            *plots,
            _families(report, gpu, named),
            _choices(report),
            _verdicts(report),
            Section("Largest errors", _largest(scored, gpu, len(named) > 1)),
            Section("Whole runs with failures", _whole_runs(report)),
            _skipped_section(report),
            Section("Columns not used", (Lines((quote(", ".join(report.ignored_columns)),), mood="soft"),)
                    if report.ignored_columns else ()),
        ),
        (quote(", ".join(Path(source).name for source in report.sources)), *([founding] if founding else [])),
        titled=True,
    )  # fmt: skip


def class_of(score: Score) -> str:
    """What a point's colour stands for: layers, a sub-module or a kernel class, all passes alike; else the family, and of
    training steps what is trained."""
    if score.quantity == "time_us" and score.precision and " " in score.family:
        words = label(score.family.split(" ", 1)[1]).split(" ")
        return " ".join(words[:-1] if len(words) > 1 and words[-1] in PHASES else words)
    return score.family if score.kind is None else f"{score.family}, {_TRAINED.get(score.kind.trained, score.kind.trained)}"


_TRAINED = {"dense": "dense", "experts": "mixtures of experts", "adapters": "adapters", "graph": "traced graphs"}
"""Models whose errors differ, and so have colours of their own."""


def _figures(report: Report, scored: Sequence[Score]) -> tuple[Figure, ...]:
    errors = sorted(abs(score.error_pct or 0.0) for score in scored)
    skipped = sum(score.skipped is not None for score in report.rows)
    counts = (Figure("compared", "rows compared", len(errors)), Figure("skipped", "skipped", skipped))
    if not errors:
        return counts
    near, most = sum(error <= 100 * BAND for error in errors) / len(errors), errors[math.ceil(0.9 * len(errors)) - 1]
    return (
        *counts,
        Figure("median_abs", "median |error|", median(errors) / 100.0, "%", None, f"{median(errors):.1f} %"),
        Figure("near", Sentence("within {share} %", share=f"{100 * BAND:g}"), near, "%"),
        Figure("p90_abs", Sentence("{share} % lie within", share="90"), most / 100.0, "%", None, f"{most:.1f} %"),
    )


def _plot_section(quantity: str, scores: Sequence[Score]) -> Section:
    """Points on logarithmic axes, between the lines of `BAND` around equality."""
    title = Sentence("Predicted against measured {what}", what=Sentence(NAMES.get(quantity, quantity)))
    groups: dict[str, list[Score]] = {}
    for score in scores:
        if (score.measured or 0.0) > 0 and (score.predicted or 0.0) > 0:
            groups.setdefault(class_of(score), []).append(score)
    drawn = sum(map(len, groups.values()))
    if not drawn:
        return Section(title, ())
    unit, scale = AXES.get(quantity, ("", 1.0))
    values = [scale * (value or 0.0) for listed in groups.values() for s in listed for value in (s.measured, s.predicted)]
    ends = (min(values) / 1.2, max(values) * 1.2)
    step = math.ceil(drawn / MOST_POINTS)
    legend, marks = [], []
    ordered = sorted(groups.items(), key=lambda pair: (pair[0].split(" ", 1)[0] not in SHAPES, pair[0]))
    for number, (name, listed) in enumerate(ordered):
        few = len(ordered) <= len(COLOURS)  # more than differ for all eyes
        colour = COLOURS[number] if few else f"hsl({137 * number % 360} 62% 47%)"
        errors = [abs(s.error_pct or 0.0) for s in listed]
        words = Sentence("{name}: {count}, median {error} %", name=name, count=f"{len(listed):,}", error=f"{median(errors):.1f}")
        legend.append((words, colour))
        shape = SHAPES.get(name.split(" ", 1)[0], "dot")
        marks += [Mark(scale * (s.measured or 1.0), scale * (s.predicted or 1.0), _tip(s), colour, shape) for s in listed[::step]]
    marks.reverse()  # layers lie above sub-modules, and those above kernels
    shown = Sentence(", every {step}th point drawn", step=step) if step > 1 else ""
    about = Sentence(
        "Each point is a row; on the line they agree, the others are ±{band} %{shown}.", band=f"{100 * BAND:g}", shown=shown
    )
    curves = tuple(
        Curve(name, "var(--soft)", tuple((end, end * factor) for end in ends), dash)
        for name, factor, dash in (("equal", 1.0, ""), ("+10 %", 1.0 + BAND, "5 4"), ("-10 %", 1.0 / (1.0 + BAND), "5 4"))
    )
    named = UNITS.get(quantity, "")
    heads = [word if unit or not named else Sentence(f"{word}, {{unit}}", unit=named) for word in ("measured", "predicted")]
    across, up = (Scale(head, unit, log=True) for head in heads)
    return Section(
        title, (Plot("predicted against measured", across, up, tuple(marks), curves, 560.0, tuple(legend), about, detail=True),)
    )


def _tip(score: Score) -> Sentence:
    return Sentence(
        "{family}, {id}: {job}, {measured} measured, {predicted} predicted, {error} %", family=label(score.family), id=score.id,
        job=score.job, measured=format_value(score, score.measured), predicted=format_value(score, score.predicted),
        error=f"{score.error_pct:+.1f}",
    )  # fmt: skip


COVERAGE = ("rows", "within ±, %", "within 2 ±, %", "median ±, %")
"""Columns of the table of stated errors by family."""


def _families(report: Report, gpu: str, named: Sequence[str]) -> Section:
    """Errors of what the headline counts, then of each family; families without scores are in the list of reasons."""
    of = Sentence(" {quantity}", quantity=Sentence(NAMES.get(named[0], named[0]))) if len(named) == 1 else ""
    quantity = (Column("quantity", wraps=True),) if len(named) > 1 else ()
    blocks: list[Block] = []
    families = [line for line in report.families if line.n]
    for key, head, lines in (("headline", "table", report.headline), ("families", "family", families)):
        rows = []
        for line in lines:
            noted = report.label(line) if key == "families" else ""
            name: str = label(line.family, gpu) if key == "families" else line.family
            name = Sentence("{family} ({note})", family=name, note=Sentence(noted)) if noted else name
            rows.append((Cell(name), *([Cell(line.quantity)] if quantity else []), *_errors(line)))
        columns = (Column(head, wraps=True), *quantity, *(Column(error, True) for error in ERRORS))
        blocks += [Table(key, columns, tuple(rows))] if rows else []
    stated = "Within the relative error that they state: {share} % of {rows} step times, {which}"
    blocks += [Lines((Sentence(stated, share=f"{one.share_pct:.0f}", rows=f"{one.rows:,}", which=Sentence(one.which)),))
               for one in report.coverage]  # fmt: skip
    if report.family_coverage:
        heads = (Column("family", wraps=True), *(Column(head, True) for head in COVERAGE))
        inside = tuple(
            (Cell(label(one.which, gpu)), _count(one.rows), *map(_figure, (one.share_pct, one.twice_pct, one.claimed_pct)))
            for one in report.family_coverage
        )
        blocks.append(Table("coverage", heads, inside))
    return Section(Sentence("Error of predicted against measured{of}, in percent of measured", of=of), tuple(blocks))


def _errors(line: FamilySummary) -> tuple[Cell, ...]:
    figures = (line.mape_pct, line.median_abs_pct, line.bias_pct, line.max_abs_pct)
    signs = ("", "", "+", "")
    return (_count(line.n), *(_figure(value, sign) for value, sign in zip(figures, signs, strict=True)), _count(line.skipped))


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", float(value))


def _figure(value: float | None, sign: str = "") -> Cell:
    return Cell("-" if value is None else f"{value:{sign}.1f}", value)


def _choices(report: Report) -> Section:
    """Regret of the plan predicted fastest, and the share of pairs in the predicted order."""
    title = Sentence("Choices among measured plans of one job, regret in percent")
    if report.aside:
        title = Sentence("{title}; {count} rows set aside", title=title, count=f"{report.aside:,}")
    heads = ("jobs", "plans", "mean", "median", "largest", "pairs", "in order")
    rows = tuple(
        (Cell(line.family), _count(line.groups), _count(line.plans),
         *map(_figure, (line.mean_regret_pct, line.median_regret_pct, line.max_regret_pct)), _count(line.pairs),
         Cell("-" if line.agreed_pct is None else f"{line.agreed_pct:.0f} %", line.agreed_pct))
        for line in by_family(report.choices)
    )  # fmt: skip
    columns = (Column("family", wraps=True), *(Column(head, True) for head in heads))
    return Section(title, (Table("choices", columns, rows),) if rows else ())


def _verdicts(report: Report) -> Section:
    template = (
        "{family}: of {ran} runs that ran, {fit} are called fitting; of {called} called out of memory, {out} failed "
        "({failed} failed in all, for any reason)"
    )
    lines = tuple(
        Sentence(template, family=line.family, ran=f"{line.ran:,}", fit=f"{line.fit:,}", called=f"{line.called_out:,}",
                 out=f"{line.out:,}", failed=f"{line.failed:,}")
        for line in report.verdicts
    )  # fmt: skip
    return Section("Verdicts on memory", (Lines(lines),) if lines else ())


def _largest(scored: Sequence[Score], gpu: str, several: bool) -> tuple[Block, ...]:
    """`several`: rows are of several quantities."""
    columns = (
        Column("family", left_out="terminal"), Column("row", wraps=True), Column("what", wraps=True),
        *((Column("quantity", wraps=True),) if several else ()), Column("measured", True), Column("predicted", True),
        Column("error", True),
    )  # fmt: skip
    rows = tuple(
        (Cell(label(s.family, gpu)), Cell(s.id), Cell(s.job or label(s.family)), *([Cell(s.quantity)] if several else []),
         Cell(format_value(s, s.measured), s.measured), Cell(format_value(s, s.predicted), s.predicted),
         Cell(f"{s.error_pct:+.1f} %", s.error_pct))
        for s in sorted(scored, key=lambda s: -abs(s.error_pct or 0.0))[:MOST_ROWS]
    )  # fmt: skip
    return (Table("largest", columns, rows, most=WORST),) if rows else ()


def _whole_runs(report: Report) -> tuple[Block, ...]:
    columns = (
        Column("row"), Column("run", wraps=True), Column("quantity", wraps=True), Column("published", True), Column("ours", True),
        Column("range", True), Column("verdict"),
    )  # fmt: skip
    rows = tuple(
        (Cell(one.id), Cell(one.run), Cell(Sentence(RUN_QUANTITIES[one.quantity])),
         *(Cell(f"{low:.4g}-{high:.4g}", low) for low, high in (one.published,)), Cell(f"{one.predicted:.4g}", one.predicted),
         *(Cell(f"{low:.4g}-{high:.4g}", low) for low, high in (one.range,)), Cell(Sentence(one.verdict)))
        for one in report.goodput
    )  # fmt: skip
    return (Table("whole_runs", columns, rows),) if rows else ()


def _skipped_section(report: Report) -> Section:
    reasons = Counter(s.skipped for s in report.rows if s.skipped is not None).most_common()
    rows = tuple((_count(count), Cell(str(reason))) for reason, count in reasons)
    table = Table(
        "reasons", (Column("rows", True), Column("reason", wraps=True)), rows, most=MOST_REASONS, rest="and {count} more reasons"
    )
    return Section(Sentence("{count} skipped", count=f"{sum(count for _, count in reasons):,}"), (table,) if rows else ())
