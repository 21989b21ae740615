"""What `plan` shows: the answer and its reasons, machines by days and dollars, where a step's time goes, all rows."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.predict.category import StepGroup
from windtunnel.predict.sheet.parts import COLOUR, group_sums
from windtunnel.search.budget.alternative import Alternative
from windtunnel.search.budget.data import format_value, stated_fields
from windtunnel.search.budget.planner import Planned
from windtunnel.search.budget.reasons import reasons, say_hourly, say_layout, say_missed, say_question, say_short
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Block,
    Cell,
    Column,
    Curve,
    Figure,
    Layer,
    Lines,
    Mark,
    Plot,
    Scale,
    Section,
    Sheet,
    Stack,
    Stacks,
    Table,
)
from windtunnel.sheet.colours import COLOURS
from windtunnel.sheet.sentence import Sentence, join, quote
from windtunnel.spec import names

MOST_ROWS, MOST_BARS = 200, 24
"""Rows of the table and bars of the picture at most, the best first."""
SHAPES = ("circle", "square", "cross")


def plan_sheet(answer: Planned) -> Sheet:
    """What `plan` shows."""
    rows = answer.alternatives
    question = say_question(answer.wish)
    command = command_of(rows[0]) if rows else ""
    said = tuple(reasons(answer))
    return Sheet(
        question,
        question,
        _figures(rows),
        (
            Section("", (_table(rows, True), Lines(("", *said), brief=True)) if rows else (Lines(said, brief=True),)),
            Section("The answer", (Lines(said, detail=True),)),
            Section("Days and dollars of each machine", (_days_and_dollars(answer),) if rows else ()),
            Section("Where the time of a step goes", _steps(rows) if rows else ()),
            Section("All rows", (_table(rows, False), *_left_column(rows)) if rows else ()),
            Section("To predict the best row in full", (Lines((quote(command),), mood="code", detail=True),) if command else ()),
        ),
        _subtitle(answer),
        titled=True,
    )


def _subtitle(answer: Planned) -> tuple[str, ...]:
    if not answer.alternatives:
        return ()
    good = sum(row.good for row in answer.alternatives)
    machines = list(dict.fromkeys(row.machine.name for row in answer.alternatives))
    named = quote(", ".join(machines[:6]))
    if len(machines) > 6:
        named = Sentence("{machines} and {count} more", machines=named, count=len(machines) - 6)
    text = "{count} alternatives on {machines}; {good} meet every target"
    return (Sentence(text, count=f"{len(answer.alternatives):,}", machines=named, good=f"{good:,}"),)


def _figures(rows: Sequence[Alternative]) -> tuple[Figure, ...]:
    if not rows:
        return (Figure("alternatives", "alternatives", Sentence("none"), mood="bad"),)
    best = rows[0]
    p = best.prediction
    days = "" if "deadline" not in best.beyond else "bad"
    figures = [
        Figure("alternatives.cluster", "the best machine" if best.good else "nearest", quote(_name(best))),
        Figure("alternatives.days", "days", best.days, "day", None, _say_days(best), days),
    ]
    if best.price.cost is not None:
        mood = "" if "budget" not in best.beyond else "bad"
        within = say.dollars_within(best.price.cost, p.relative_error)
        figures.append(
            Figure("alternatives.cost", "cost of the run", best.price.cost, "$", p.relative_error, mood=mood, within=within)
        )
    met = Sentence("yes") if best.good else say_missed(best)
    return (
        *figures,
        Figure("alternatives.step_time_s", "step time", p.step_time_s, "s", p.relative_error),
        Figure("alternatives.mfu", "MFU", p.mfu, "%", None, say.percent(p.mfu), within=_share_within(p.mfu, p.relative_error, 1)),
        Figure("alternatives.loss", "loss", best.loss, "nat", None, f"{best.loss:.3f}"),
        Figure("alternatives.meets_all", "meets every target", met, mood="good" if best.good else "bad"),
    )


def _share_within(share: float, relative: float, digits: int) -> str:
    """`42.3 ±3.8 %`: points of a share."""
    return f"{100.0 * share:.{digits}f} ±{100.0 * share * relative:.{digits}f} %"


def _say_days(row: Alternative) -> str:
    """`43.0 ±5.3`, `0.194 ±0.027`."""
    days = f"{row.days:,.1f}" if row.days >= 10.0 else f"{row.days:.3g}"
    return f"{days} ±{row.days * row.prediction.relative_error:.2g}"


def _name(row: Alternative) -> str:
    return f"{row.machine.cluster.gpus:,} × {row.machine.name}"


def _days_and_dollars(answer: Planned) -> Block:
    """A point for each row, a colour and shape for each machine; what misses a target is hollow, targets are lines."""
    priced = [(row, row.price.cost) for row in answer.alternatives[:MOST_ROWS] if row.price.cost is not None]
    machines = list(dict.fromkeys(row.machine.name for row, _ in priced))
    look = {name: (COLOURS[n % len(COLOURS)], SHAPES[n % len(SHAPES)]) for n, name in enumerate(machines)}
    marks = []
    for row, cost in reversed(priced):
        tip: str = Sentence(
            "{row}: {time}, {cost}, ±{error} %, loss {loss}",
            row=_name(row), time=say.duration(row.days), cost=say.dollars(cost),
            error=f"{100 * row.prediction.relative_error:.0f}", loss=f"{row.loss:.3f}",
        )  # fmt: skip
        tip = tip if row.good else join((tip, say_missed(row)), "; ")
        marks.append(Mark(row.days, cost, tip, *look[row.machine.name], not row.good))
    if not marks:
        return Lines(("No machine states a price: --set cluster.price_per_gpu_hour=2.5 states one.",), detail=True)
    curves, wish = [], answer.wish
    days, costs = [mark.x for mark in marks], [mark.y for mark in marks]
    reach = (0.9 * min(*days, wish.days or days[0]), 1.1 * max(*days, wish.days or days[0]))
    span = (0.9 * min(*costs, wish.budget or costs[0]), 1.1 * max(*costs, wish.budget or costs[0]))
    if wish.budget is not None:
        curves.append(Curve("the budget", "var(--ink)", ((reach[0], wish.budget), (reach[1], wish.budget)), "6 4"))
    if wish.days is not None:
        curves.append(Curve("the deadline", "var(--ink)", ((wish.days, span[0]), (wish.days, span[1])), "2 4"))
    about = (
        "hollow: misses a target; dashed: the budget; dotted: the deadline; a point under the mouse or the keyboard tells its row"
    )
    legend = tuple((quote(name), colour) for name, (colour, _) in look.items())
    across, up = Scale("days", "", True), Scale("cost of the run", "$", True)
    label = "days and dollars of each alternative"
    return Plot(label, across, up, tuple(marks), tuple(curves), legend=legend, about=about, detail=True)


def _steps(rows: Sequence[Alternative]) -> tuple[Block, ...]:
    """The shares of a step on each row, waits included, and the step's time behind the bar."""
    shown = rows[:MOST_BARS]
    sums = [group_sums(row.prediction.breakdown) for row in shown]
    groups = [group for group in StepGroup if any(group in of for of in sums)]
    stacks = []
    for row, of in zip(shown, sums, strict=True):
        p = row.prediction
        said = f"{say.seconds(p.step_time_s)}{say.error_words(p.relative_error)}, MFU {say.percent(p.mfu, 0)}"
        stacks.append(Stack(quote(_name(row)), tuple(of.get(group, 0.0) / p.step_time_s for group in groups), said=quote(said)))
    layers = tuple(Layer(str(group), COLOUR[group]) for group in groups)
    blocks: list[Block] = [Stacks("shares of a step on each alternative", "", layers, tuple(stacks), "%", (0.01, "%"), detail=True)]
    if len(rows) > MOST_BARS:
        blocks.append(
            Lines((Sentence("the first {count} of {all} rows", count=MOST_BARS, all=len(rows)),), mood="soft", detail=True)
        )
    return tuple(blocks)


def _table(rows: Sequence[Alternative], brief: bool) -> Table:
    """All rows. `brief`: for the terminal, without what is the same in all of them, such as a stated model."""
    same_work = brief and len({(row.parameters, row.tokens) for row in rows}) == 1 and len(rows) > 1
    owned, missed = any(row.ownership is not None for row in rows), any(not row.good for row in rows)
    left_out = [
        *(("model", "tokens", "loss") if same_work else ()),
        *(() if owned else ("capital",)),
        *(() if missed else ("misses",)),
    ]
    left_out += ["step"] if brief else []
    heads = (
        Column("cluster" if brief else "machine"), Column("GPUs", True), Column("$/h" if brief else "$ a GPU hour", True),
        Column("model", True), Column("tokens", True), Column("loss", True), Column("days", True),
        Column("$" if brief else "cost", True), Column("capital", True), Column("misses"),
        Column("MWh" if brief else "energy", True, "narrow" if brief else ""), Column("step", True), Column("±", True),
        Column("MFU", True), Column("batch", True), Column("plan", wraps=True),
    )  # fmt: skip
    kept = [number for number, column in enumerate(heads) if column.head not in left_out]
    cells = tuple(
        tuple(row[number] for number in kept) for row in (_row(one, brief) for one in rows[: None if brief else MOST_ROWS])
    )
    columns = tuple(heads[number] for number in kept)
    return Table("alternatives" if brief else "rows", columns, cells, brief=brief, detail=not brief)


def _left_column(rows: Sequence[Alternative]) -> tuple[Block, ...]:
    if len(rows) <= MOST_ROWS:
        return ()
    return (Lines((Sentence("{count} rows more are not shown.", count=f"{len(rows) - MOST_ROWS:,}"),), mood="soft", detail=True),)


def _row(row: Alternative, brief: bool) -> tuple[Cell, ...]:
    p, nothing, gpus = row.prediction, Cell("-"), row.machine.cluster.gpus
    hour, cost, energy = row.machine.dollars_per_gpu_hour, row.price.cost, row.price.energy_j
    unsure = "?" if "kernels" in row.assumed else ""
    capital = None if row.ownership is None else row.ownership.capital
    error = p.relative_error
    return (
        Cell(quote(row.machine.name)),
        Cell(f"{gpus:,}", float(gpus)),
        nothing if hour is None else Cell(say_hourly(row), hour),
        Cell(say_short(row.parameters), row.parameters),
        Cell(say_short(row.tokens), row.tokens),
        Cell(f"{row.loss:.3f}", row.loss),
        Cell(f"{row.days:,.1f}" if brief else _say_days(row), row.days),
        nothing if cost is None else Cell(say_short(cost) if brief else say.dollars_within(cost, error), cost),
        nothing if capital is None else Cell(say_short(capital) if brief else say.dollars(capital), capital),
        Cell(say_missed(row)),
        nothing if energy is None else Cell(f"{energy / 3.6e9:,.0f}" if brief else say.energy(energy), energy),
        Cell(say.seconds(p.step_time_s), p.step_time_s),
        Cell(f"{100 * error:.0f} %{unsure}", error),
        Cell(say.percent(p.mfu, 0) if brief else _share_within(p.mfu, error, 0), p.mfu),
        Cell(f"{p.job.plan.global_batch:,}", float(p.job.plan.global_batch)),
        Cell(say_layout(row)),
    )


def command_of(row: Alternative) -> str:
    """The command line that predicts a row in full; empty for a model that has no name in the catalogue."""
    job = row.prediction.job
    if job.model.name not in names("models"):
        return ""
    sets = [f"cluster.gpus={row.machine.cluster.gpus}", f"tokens={row.tokens:.6g}"]
    sets += [f"{key}={format_value(value)}" for key, value in stated_fields(row).items()]
    words = " ".join(f"--set {text}" if " " not in text and "[" not in text else f"--set '{text}'" for text in sets)
    return f"windtunnel predict {job.model.name} --on {row.machine.name} --set runtime.framework={job.runtime.framework} {words}"
