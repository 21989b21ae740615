"""What a measured run shows: the history of its steps with the points where it changed, where each rank's time goes, calls,
waiting.

Where the level of a run's steps changes: the test of Pettitt (1979), which ranks values, again on both sides of a change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.runs.report import RankMean, RunReport, rank_means
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Bar,
    Bars,
    Block,
    Cell,
    Column,
    Curve,
    Figure,
    Folded,
    Layer,
    Lines,
    Plot,
    Scale,
    Section,
    Sheet,
    Stack,
    Stacks,
    Table,
)
from windtunnel.sheet.colours import BLUE, BROWN, GOLD, GREEN, GREY, ORANGE, PINK, SKY
from windtunnel.sheet.numbers import measured_seconds as seconds
from windtunnel.sheet.numbers import signed_seconds
from windtunnel.sheet.sentence import Sentence, quote

MOST_RANKS, MOST_ROWS = 48, 400
"""Ranks in the picture, and rows of a table, at most."""
MOST_IN_TERMINAL = 12
MOMENTS = 600
"""Steps of the history that are drawn: of more, the median of neighbours."""
MOST_BROKEN = 12

PARTS = {
    "compute": ("kernels", BLUE),
    "exposed": ("exposed communication", ORANGE),
    "copy": ("copies", GOLD),
    "host": ("idle: not launched yet", PINK),
    "sync": ("idle: the host waits", BROWN),
    "queue": ("idle: launched, waits", SKY),
    "unknown": ("unknown", GREY),
}
"""Part of a measured step -> what it is called, and its colour. They add up to the step."""

BY_NAME = {name: colour for name, colour in PARTS.values()} | {"hidden communication": GREEN}
"""Colours by what parts are called; kernel classes take the others."""


def run_sheet(report: RunReport, broken: Sequence[str] = ()) -> Sheet:
    """What `runs show` shows. `broken`: what could not be read."""
    means = rank_means(report.steps)
    numbers, history = _history_of(report)
    changes = changes_of(history)
    source = Path(report.run.source).name
    title = Sentence("{run}: a measured run", run=say.clean(source)) if source else Sentence("a measured run")
    ranks, steps = len({step.rank for step in report.steps}), say.count_words(len(history), "step")
    subtitle = steps
    if ranks:
        subtitle = Sentence("{steps} of {ranks}", steps=steps, ranks=say.count_words(ranks, "rank"))
    waits = _waits(report) if report.waits.calls else ()
    notes = tuple(quote(f"{name}: {value}") for name, value in report.run.facts.items())
    warned = (Lines(tuple(map(quote, report.notes)), mood="warn", detail=True),) if report.notes else ()
    return Sheet(
        title, "", _figures(means, history, changes),
        (
            *(Section("", (block,)) for block in (_in_terminal(report, means) if report.steps else _steps(report))),
            *broken_section(broken),
            Section("Steps over the run", _history(numbers, history, changes) if len(history) > 2 else ()),
            Section("Where the time of a step goes, rank by rank", _ranks(means) if means else ()),
            Section("Kernel classes, a mean step of a mean rank", _classes(report) if report.classes else ()),
            Section("Communication calls", (_calls(report),) if report.calls else ()),
            Section("Operators by shape", (_operators(report),) if report.operators else ()),
            Section("Which rank waits for which", waits),
            Section("Notes", (*((Lines(notes, listed=True, detail=True),) if notes else ()), *warned)),
        ),
        (subtitle,), titled=True,
    )  # fmt: skip


def _operators(report: RunReport) -> Table:
    """Operators with their rates, and what the kernel models of the trace's GPU say of the same shapes."""
    rows = []
    for one in report.operators[:MOST_ROWS]:
        flops = Cell("") if one.flops_rate is None else Cell(f"{one.flops_rate / 1e12:.3g} TFLOP/s", one.flops_rate)
        moved = Cell("") if one.bytes_rate is None else Cell(say.rate(one.bytes_rate), one.bytes_rate)
        peak = Cell("") if one.peak is None else Cell(say.percent(one.peak, 0), one.peak)
        told = Cell("") if one.predicted is None else Cell(seconds(one.predicted), one.predicted)
        rows.append(
            (
                *(Cell(say.clean(text)) for text in (one.op, one.module, one.phase, one.shapes)),
                Cell(f"{one.number:,}", one.number), Cell(seconds(one.seconds), one.seconds),
                Cell(say.percent(one.share), one.share), flops, moved, peak, Cell(one.bound or f"({one.why})"), told,
            )
        )  # fmt: skip
    heads = ("number", "seconds", "share", "FLOP/s", "bytes/s", "of peak")
    columns = (
        *(Column(head, wraps=True) for head in ("operator", "module", "phase", "shapes")), *(Column(head, True) for head in heads),
        Column("bound"), Column("predicted", True),
    )  # fmt: skip
    return Table("operators", columns, tuple(rows), filtered=True, detail=True)


def broken_section(broken: Sequence[str]) -> tuple[Section, ...]:
    """The section that says what of a run could not be read; none where all was read."""
    if not broken:
        return ()
    rest = Lines(("The answer is about the rest of the run.",), detail=True)
    lines: list[str] = [quote(line) for line in broken[:MOST_BROKEN]]
    if len(broken) > MOST_BROKEN:
        lines.append(Sentence("and {count} more", count=f"{len(broken) - MOST_BROKEN:,}"))
    return (Section("A part could not be read", (rest, Lines(tuple(lines), mood="warn", listed=True, detail=True))),)


def _history_of(report: RunReport) -> tuple[list[int], Floats]:
    """Numbers of steps, and the seconds of each: the longest of its ranks."""
    longest: dict[int, float] = {}
    if report.steps:
        pairs = [(step.step, step.seconds) for step in report.steps]
    else:
        steps = report.run.steps
        pairs = list(zip(steps.step.tolist(), steps.seconds.tolist(), strict=True))
    for number, took in pairs:
        if np.isfinite(took):
            longest[int(number)] = max(longest.get(int(number), 0.0), float(took))
    order = sorted(longest)
    return order, np.array([longest[number] for number in order])


def _figures(means: tuple[RankMean, ...], history: Floats, changes: tuple[StepChange, ...]) -> tuple[Figure, ...]:
    if not len(history):
        return (Figure("steps.seconds", "steps", None, text=Sentence("none"), mood="bad"),)
    middle, longest = float(np.median(history)), float(history.max())
    spread = 1.4826 * float(np.median(np.abs(history - middle)))
    figures = [
        Figure("steps.median", "a step, median", middle, "s", None, quote(f"{seconds(middle)} ±{seconds(spread)}")),
        Figure("steps.longest", "the longest step", longest, "s measured", None, "", "bad" if longest > 1.5 * middle else ""),
        Figure("steps.changes", "changes over the run", len(changes), "", None, f"{len(changes)}" if changes else Sentence("none"),
               "bad" if any(change.ratio > 1.0 for change in changes) else ""),
    ]  # fmt: skip
    if means:
        step = float(np.mean([mean.seconds for mean in means])) or 1.0
        for name in ("compute", "exposed"):
            share = float(np.mean([getattr(mean, name) for mean in means])) / step
            figures.append(Figure(f"steps.{name}", PARTS[name][0], share, "%", None, say.percent(share)))
        idle = float(np.mean([mean.host + mean.sync + mean.queue for mean in means])) / step
        figures.append(Figure("steps.idle", "idle", idle, "%", None, say.percent(idle), "bad" if idle > 0.2 else ""))
    return tuple(figures)


def _history(numbers: list[int], history: Floats, changes: tuple[StepChange, ...]) -> tuple[Block, ...]:
    """Seconds of each step, the level between changes, and a line in words for each change."""
    step = max(1, -(-len(history) // MOMENTS))
    points = tuple((float(numbers[at]), float(np.median(history[at : at + step]))) for at in range(0, len(history), step))
    edges = [0, *(change.at for change in changes), len(history)]
    levels = []
    for first, end in zip(edges, edges[1:], strict=False):
        level = float(np.median(history[first:end]))
        levels += [(float(numbers[first]), level), (float(numbers[end - 1]), level)]
    about = Sentence("medians of {count} steps", count=step) if step > 1 else ""
    curves = [Curve("time of a step, its longest rank", BLUE, points), Curve("level between changes", ORANGE, tuple(levels), "6 3")]
    most = float(history.max())
    for change in changes:
        at = float(numbers[change.at])
        name = Sentence("change at step {step}", step=f"{at:,.0f}")
        curves.append(Curve(name, "var(--ink)", ((at, 0.0), (at, most)), "4 4"))
    legend = (("time of a step, its longest rank", BLUE), ("level between changes (dashed)", ORANGE))
    up = Scale("time of a step", "s measured", least=0.0)
    plot = Plot("steps", Scale("step"), up, (), tuple(curves), 260.0, legend, about, detail=True)
    told: list[str] = [
        Sentence(
            "From step {step} on a step takes {after} instead of {before} ({more}, {share}).",
            step=f"{numbers[change.at]:,}", after=seconds(change.after), before=seconds(change.before),
            more=signed_seconds(change.after - change.before), share=f"{change.ratio - 1.0:+.1%}",
        )
        for change in changes
    ]  # fmt: skip
    rows = tuple((Cell(f"{number:,}", float(number)), _time(took)) for number, took in zip(numbers, history.tolist(), strict=True))
    table = Table("steps", (Column("step", True), Column("time", True)), rows[:MOST_ROWS])
    title = Sentence("As a table")
    if len(history) > MOST_ROWS:
        title = Sentence("As a table, the first {count} of {steps} steps", count=f"{MOST_ROWS:,}", steps=f"{len(history):,}")
    lines = tuple(told or ["The level of the steps does not change over the run."])
    return (plot, Lines(lines, detail=True), Folded(title, (table,), detail=True))


def _ranks(means: tuple[RankMean, ...]) -> tuple[Block, ...]:
    """The mean step of each rank as a bar; where there are many, those that take longest."""
    shown = means if len(means) <= MOST_RANKS else tuple(sorted(means, key=lambda mean: -mean.seconds)[:MOST_RANKS])
    stacks = tuple(
        Stack(str(mean.rank), tuple(getattr(mean, name) for name in PARTS), said=Sentence(
            "{time}, {steps}", time=seconds(mean.seconds), steps=say.count_words(mean.steps, "step")))
        for mean in shown
    )  # fmt: skip
    drawn = Stacks("the mean step of each rank", "rank", LAYERS, stacks, "s measured", (1e-3, "ms"), detail=True)
    left = Sentence("the {count} slowest of {ranks} ranks", count=MOST_RANKS, ranks=f"{len(means):,}")
    heads = ("rank", "steps", "step", *(label for label, _ in PARTS.values()), "hidden communication")
    rows = tuple(
        (Cell(str(mean.rank), float(mean.rank)), Cell(f"{mean.steps:,}", float(mean.steps)), _time(mean.seconds),
         *(_time(getattr(mean, name)) for name in (*PARTS, "hidden")))
        for mean in means[:MOST_ROWS]
    )  # fmt: skip
    said = (Lines((left,), mood="soft", detail=True),) if len(means) > MOST_RANKS else ()
    return (drawn, *said, Table("ranks", tuple(Column(head, True) for head in heads), rows, detail=True))


LAYERS = tuple(Layer(label, colour) for label, colour in PARTS.values())


def _time(value: float) -> Cell:
    return Cell(seconds(value), value) if value == value else Cell("-")


def _classes(report: RunReport) -> tuple[Block, ...]:
    total = sum(report.classes.values()) or 1.0
    bars = tuple(Bar(quote(name), took, took / total, BLUE) for name, took in report.classes.items())
    return (Bars(bars, "s measured", detail=True),)


def _calls(report: RunReport) -> Table:
    rows = tuple(
        (Cell(row.comm), Cell(row.group or "-"), Cell(str(row.size or "-"), float(row.size)),
         _cell_or_dash(row.bytes, say.size(row.bytes)), Cell(f"{row.count:,}", float(row.count)),
         _time(row.seconds), _time(row.median),
         _cell_or_dash(row.bus, f"{row.bus / 1e9:,.2f} GB/s"))
        for row in report.calls[:MOST_ROWS]
    )  # fmt: skip
    heads = ("ranks", "bytes", "count", "total", "median", "bus")
    return Table("calls", (Column("call"), Column("group"), *(Column(head, True) for head in heads)), rows, detail=True)


def _cell_or_dash(value: float, words: str) -> Cell:
    return Cell(words, value) if value == value else Cell("-")


def _waits(report: RunReport) -> tuple[Block, ...]:
    """For each rank how long others waited for it, and how long it waited."""
    clocks, waits = report.clocks, sorted(report.waits.ranks, key=lambda wait: -wait.kept_waiting)
    line = Sentence(
        "{count} calls matched across ranks; their ends agree within {median} (median), {most} (95 %). What others waited for a "
        "rank is the sum over them, over the whole trace.",
        count=f"{clocks.calls:,}", median=seconds(clocks.residual_median), most=seconds(clocks.residual_p95),
    )  # fmt: skip
    layers = (Layer("others waited for it", ORANGE), Layer("it waited", GREY))
    stacks = tuple(
        Stack(str(wait.rank), (wait.kept_waiting, wait.waited), said=Sentence("last in {count} calls", count=f"{wait.last:,}"))
        for wait in waits[:MOST_RANKS]
    )
    rows = tuple(
        (Cell(str(wait.rank), float(wait.rank)), Cell(f"{wait.last:,}", float(wait.last)), _time(wait.kept_waiting),
         _time(wait.waited), Cell(", ".join(f"{name} {seconds(took)}" for name, took in list(wait.calls.items())[:3])))
        for wait in waits[:MOST_ROWS]
    )  # fmt: skip
    heads = ("rank", "last", "others waited for it", "it waited")
    return (
        Lines((line,), detail=True),
        Stacks("waiting of ranks", "rank", layers, stacks, "s measured", (1e-3, "ms"), detail=True),
        Table("waits", (*(Column(head, True) for head in heads), Column("in")), rows, detail=True),
    )


def _in_terminal(report: RunReport, means: tuple[RankMean, ...]) -> list[Block]:
    """The same in the terminal, in milliseconds."""
    names = ("seconds", "compute", "exposed", "hidden", "copy", "host", "sync", "queue", "unknown")
    about = (
        "Mean step by rank, ms. Communication: exposed, hidden. Idle: host (not launched yet), sync (the host waits),",
        "queue (launched, waits for a stream, a rank or the launch), unknown.",
    )
    rows = [
        [str(mean.rank), str(mean.steps), *(_ms(getattr(mean, name)) for name in names)] for mean in means[: 4 * MOST_IN_TERMINAL]
    ]
    blocks: list[Block] = [Lines(about, brief=True), _brief("means", ("rank", "steps", "step", *names[1:]), rows)]
    total = sum(report.classes.values())
    if report.classes:
        rows = [[name, _ms(took), f"{took / total:.1%}"] for name, took in list(report.classes.items())[:MOST_IN_TERMINAL]]
        blocks.append(_brief("classes", ("kernel class", "ms a step", "share"), rows, 1))
    if any("::" in one.op for one in report.operators):
        blocks += _longest_operators(report)
    if report.calls:
        rows = [
            [row.comm, row.group or "-", str(row.size or "-"), "-" if row.bytes != row.bytes else f"{row.bytes:,.0f}",
             str(row.count), _ms(row.seconds), f"{row.median * 1e6:,.1f}", "-" if row.bus != row.bus else f"{row.bus / 1e9:,.2f}"]
            for row in report.calls[:MOST_IN_TERMINAL]
        ]  # fmt: skip
        heads = ("call", "group", "ranks", "bytes", "count", "total ms", "median us", "bus GB/s")
        blocks.append(_brief("calls", heads, rows, 2))
        if len(report.calls) > MOST_IN_TERMINAL:
            more = Sentence("and {count} more kinds of calls", count=len(report.calls) - MOST_IN_TERMINAL)
            blocks.append(Lines((more,), brief=True))
    if report.waits.calls:
        clocks = report.clocks
        line = Sentence(
            "{count} calls matched across ranks; their ends agree within {median} us (median), {most} us (95 %). Waiting over the "
            "whole trace, where nothing computes; what others waited for a rank is the sum over them:",
            count=clocks.calls, median=f"{clocks.residual_median * 1e6:,.1f}", most=f"{clocks.residual_p95 * 1e6:,.1f}",
        )  # fmt: skip
        rows = [
            [str(wait.rank), str(wait.last), _ms(wait.kept_waiting), _ms(wait.waited),
             ", ".join(f"{name} {_ms(took)}" for name, took in list(wait.calls.items())[:3])]
            for wait in sorted(report.waits.ranks, key=lambda wait: -wait.kept_waiting)[:MOST_IN_TERMINAL]
        ]  # fmt: skip
        columns = tuple(Column(head, head != "in") for head in ("rank", "last", "kept others ms", "waited ms", "in"))
        table = Table("waits", columns, tuple(tuple(map(Cell, row)) for row in rows), brief=True)
        blocks += [Lines((line,), brief=True), table]
    return blocks


def _longest_operators(report: RunReport) -> list[Block]:
    """The operators that take longest, with their inputs."""
    whole = _operators(report)
    kept = ("operator", "phase", "shapes", "number", "seconds", "share", "of peak", "predicted")
    places = [at for at, column in enumerate(whole.columns) if column.head in kept]
    rows = tuple(tuple(row[at] for at in places) for row in whole.rows[:MOST_IN_TERMINAL])
    blocks: list[Block] = [Table("longest", tuple(whole.columns[at] for at in places), rows, brief=True, tight=True)]
    if left := len(report.operators) - len(rows):
        blocks.append(Lines((Sentence("and {count} more operators", count=f"{left:,}"),), brief=True))
    return blocks


def _brief(key: str, heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 0) -> Table:
    """A table of the terminal, whose first `words` columns are no numbers."""
    columns = tuple(Column(head, number >= words) for number, head in enumerate(heads))
    return Table(key, columns, tuple(tuple(map(Cell, row)) for row in rows), brief=True)


def _steps(report: RunReport) -> list[Block]:
    """A run without events of a device: what its steps say."""
    steps = report.run.steps
    by_rank = bool((steps.rank >= 0).any())  # a log speaks for all ranks
    rows = [
        [*(([str(steps.rank[at]) if steps.rank[at] >= 0 else "all"]) if by_rank else []), str(steps.step[at]),
         _ms(float(steps.seconds[at]))]
        for at in range(min(len(steps), 4 * MOST_IN_TERMINAL))
    ]  # fmt: skip
    line = Sentence("{count} steps; no events of a device, so that there is nothing to break down.", count=len(steps))
    table = _brief("all_steps", ("rank", "step", "ms") if by_rank else ("step", "ms"), rows)
    left = len(steps) - 4 * MOST_IN_TERMINAL
    more = [Lines((Sentence("and {count} more", count=f"{left:,}"),), brief=True)] if left > 0 else []
    return [Lines((line,), brief=True), table, *more]


def _ms(value: float) -> str:
    if value != value:
        return "-"
    return f"{value * 1e3:,.{2 if value < 1.0 else 1}f}"


CHANCE = 1e-4
"""Probability below which a change is no chance."""

HALVINGS = 4
"""How often windows of a part are halved in the search."""

CHANCE_OF_A_WINDOW = 1e-6
"""The same of a window, of which there are many."""

LEAST = 5
"""Steps of a level at least: fewer are a warm-up or a peak."""

LEAST_RATIO = 0.01
"""Share by which levels differ at least; less changes nobody's plan."""

MOST = 20
"""Changes of a run at most."""


@dataclass(frozen=True)
class StepChange:
    """The level of steps changes at number `at` of the series, from `before` to `after` seconds (medians of both sides)."""

    at: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After over before."""
        return self.after / self.before


def changes_of(seconds: Floats) -> tuple[StepChange, ...]:
    """Changes of the level of finite seconds [S], in their order; none of a series that only varies."""
    if not len(seconds):
        return ()
    cuts = _cuts_of(seconds)
    while True:
        edges = [0, *cuts, len(seconds)]
        levels = [float(np.median(seconds[begin:end])) for begin, end in zip(edges, edges[1:], strict=False)]
        apart = [abs(after - before) / before if before > 0.0 else 0.0 for before, after in zip(levels, levels[1:], strict=False)]
        if not apart or min(apart) >= LEAST_RATIO:
            break
        del cuts[apart.index(min(apart))]  # neighbours that are alike are one level
    return tuple(StepChange(at, levels[n], levels[n + 1]) for n, at in enumerate(cuts))


def _cuts_of(seconds: Floats) -> list[int]:
    """Where the series may change, in order. A part between two changes back and forth splits where the test says, alike or not."""
    cuts: list[int] = []
    open_parts = [(0, len(seconds))]
    while open_parts and len(cuts) < MOST:
        begin, end = open_parts.pop(0)
        if (at := _find_cut(seconds, begin, end)) is None:
            continue
        cuts.append(at)
        open_parts += [(begin, at), (at, end)]
    edges = [0, *sorted(cuts), len(seconds)]
    for n in range(1, len(edges) - 1):  # each once more between its neighbours, whose levels are purer than those of what was split
        edges[n] = _settle(seconds, *edges[n - 1 : n + 2])
    return edges[1:-1]


def _find_cut(seconds: Floats, begin: int, end: int) -> int | None:
    """Where a part changes: as a whole, or else in a half, a quarter, … of it, where a change back does not hide the change."""
    wide, chance = end - begin, CHANCE
    for _ in range(HALVINGS + 1):
        firsts = range(begin, end - wide + 1, max(1, wide // 2))
        for first in firsts:
            if (at := _pettitt(seconds[first : first + wide], chance)) is not None:
                return first + at
        wide, chance = wide // 2, CHANCE_OF_A_WINDOW
    return None


def _settle(seconds: Floats, begin: int, at: int, end: int) -> int:
    """Where the levels on both sides explain a part best, by absolute distances up to that of the levels: a peak fits neither."""
    before, after = float(np.median(seconds[begin:at])), float(np.median(seconds[at:end]))
    part, most = seconds[begin:end], abs(after - before)
    of_one, of_other = (np.minimum(np.abs(part - level), most) for level in (before, after))
    worse = np.cumsum(of_one - of_other)[LEAST - 1 : len(part) - LEAST]
    return begin + LEAST + int(np.argmin(worse)) if len(worse) and before != after else at


def _pettitt(part: Floats, least: float) -> int | None:
    """The likeliest change of a part, or None where chance explains it by more than `least`."""
    count = len(part)
    if count < 2 * LEAST:
        return None
    _, which, each = np.unique(part, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(each) - (each - 1) / 2.0)[which]  # equal values share their mean rank
    split = np.arange(1, count)
    apart = np.abs(2.0 * np.cumsum(ranks)[:-1] - split * (count + 1.0))
    apart[: LEAST - 1] = apart[count - LEAST :] = 0.0
    at = int(np.argmax(apart))
    chance = 2.0 * math.exp(-6.0 * float(apart[at]) ** 2 / (float(count) ** 3 + float(count) ** 2))
    return at + 1 if chance < least else None
