"""What `plan` shows: the answer and its reasons, machines by days and dollars, where a step's time goes, all rows.

A plan from a budget, a deadline or a loss in words: what rows miss, and why the best one is the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windtunnel.predict.category import StepGroup
from windtunnel.predict.sheet.parts import COLOUR, group_sums
from windtunnel.search.budget.data import format_value, stated_fields
from windtunnel.search.budget.planner import Planned
from windtunnel.search.budget.wish import Alternative, Wish
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


_LIMITS = {"deadline": "The deadline binds.", "budget": "The budget binds."}


def say_short(number: float) -> str:
    """`1.5T`, `70B`, `740k`."""
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.3g}"


def say_hourly(row: Alternative) -> str:
    """Dollars of a GPU and hour; a question mark where the catalogue assumes them."""
    each = row.machine.dollars_per_gpu_hour
    return "-" if each is None else f"{each:.2f}" + ("?" if "price" in row.assumed else "")


def say_missed(row: Alternative) -> str:
    """What a row misses, by how much: `over by $740k`; empty for one that meets all."""
    parts = [] if row.prediction.fits else [Sentence("does not fit")]
    for target, value in row.beyond.items():
        if target == "budget":
            parts.append(Sentence("over by ${value}", value=say_short(value)))
        elif target == "deadline":
            parts.append(Sentence("late by {time}", time=say_days(value)))
        else:
            parts.append(Sentence("lacks {value} {what}", value=say_short(value), what=Sentence(target)))
    return join(parts) if parts else ""


def say_days(days: float) -> Sentence:
    """`12 days`, `1.4 days`, `9.0 hours`."""
    if days >= 1.0:
        return Sentence("{count} days", count=f"{days:,.0f}" if days >= 10.0 else f"{days:.1f}")
    return Sentence("{count} hours", count=f"{24.0 * days:.1f}")


def say_layout(row: Alternative) -> str:
    """The plan in words: degrees above 1, recompute."""
    plan, dp = row.prediction.job.plan, row.prediction.job.dp
    degrees = {"vpp": plan.vpp, "cp": plan.cp, "ep": plan.ep}
    more = "".join(f" {name} {value}" for name, value in degrees.items() if value > 1)
    layout = f"tp {plan.tp} pp {plan.pp}{more} dp {dp}"
    if plan.recompute == "none":
        return quote(layout)
    return Sentence("{layout}, recompute {recompute}", layout=layout, recompute=plan.recompute)


def say_question(wish: Wish) -> Sentence:
    """What was asked."""
    parts = []
    if wish.budget is not None:
        parts.append(quote(say.dollars(wish.budget)))
    if wish.days is not None:
        parts.append(Sentence("{count} days", count=f"{wish.days:g}"))
    if wish.loss is not None:
        parts.append(Sentence("a loss of {loss}", loss=f"{wish.loss:g}"))
    if wish.parameters is not None:
        parts.append(Sentence("{count} parameters", count=say_short(wish.parameters)))
    if wish.tokens is not None:
        parts.append(Sentence("{count} tokens", count=say_short(wish.tokens)))
    if wish.tokens_per_parameter is not None:
        parts.append(Sentence("{count} tokens a parameter", count=f"{wish.tokens_per_parameter:g}"))
    return Sentence("For {wishes}, by the scaling law {law}", wishes=join(parts, " and "), law=wish.law.id)


def _lost_days(wish: Wish, best: Alternative) -> Sentence:
    if best.prediction.job.reliability is not None:
        text = "{share} of the days count, by the failures of {run}."
        return Sentence(text, share=say.percent(best.ettr, 1), run=best.prediction.job.reliability.id)
    if wish.goodput == 1.0:
        return Sentence("Days are without failures and restarts.")
    return Sentence("{share} of the days count.", share=say.percent(wish.goodput, 0))


def _say_row(row: Alternative) -> Sentence:
    """A row in a sentence."""
    facts = {"gpus": f"{row.machine.cluster.gpus:,}", "machine": row.machine.name, "time": say.duration(row.days),
             "loss": f"{row.loss:.3f}"}  # fmt: skip
    if row.price.cost is None:
        return Sentence("{gpus} GPUs of {machine} ({time}, loss {loss})", **facts)
    return Sentence("{gpus} GPUs of {machine} ({time} for ${cost}, loss {loss})", cost=say_short(row.price.cost), **facts)


def _say_grounds(answer: Planned, best: Alternative) -> Iterator[str]:
    """What the winner assumes, beside the best row that does not."""
    for which in best.assumed:
        other = next((row for row in answer.alternatives if row.good and which not in row.assumed), None)
        if which == "price" and other is None:
            continue  # the line about ? says it of all
        what = Sentence("its price of ${price} an hour", price=say_hourly(best).rstrip("?"))
        if which == "kernels":
            what = Sentence("the time of its kernels, ±{error} %", error=f"{100 * best.prediction.relative_error:.0f}")
        beside = Sentence("so does every other row that meets the targets")
        if other:
            beside = Sentence("the best row that does not assume it is {row}", row=_say_row(other))
        yield Sentence("The winner rests on an assumption: {what}; {beside}.", what=what, beside=beside)


def _say_nearest(answer: Planned) -> Iterator[str]:
    """For a wish of several targets, what would have to give: the row that misses each alone."""
    wish = answer.wish
    rows = [row for row in answer.alternatives if row.prediction.fits]
    if wish.budget is None or wish.days is None or not wish.work_is_fixed:
        return
    in_time = min((row for row in rows if "deadline" not in row.beyond), key=lambda row: row.price.cost or 0.0, default=None)
    in_money = min((row for row in rows if "budget" not in row.beyond), key=lambda row: row.days, default=None)
    if in_time is not None:
        yield Sentence("In time the cheapest is {row}.", row=_say_row(in_time))
    if in_money is not None:
        yield Sentence("Within the budget the quickest is {row}.", row=_say_row(in_money))


def _say_bought(best: Alternative) -> Iterator[str]:
    """What buying the winner takes."""
    own = best.ownership
    if own is None:
        return
    even = Sentence("rent would never cost more")
    if own.months is not None:
        even = Sentence("rent would have cost as much after {months} months of such use", months=f"{own.months:.0f}")
    text = (
        "Bought: the machine costs ${capital} on the first day; the run pays its share of {years} years ({share}); {even}."
    )  # fmt: skip
    share = say.percent(best.days / 365.25 / own.years, 1)
    yield Sentence(text, capital=say_short(own.capital), years=f"{own.years:g}", share=share, even=even)


def reasons(answer: Planned) -> Iterator[str]:
    """Sentences: the best alternative and what stops it, what the peak would have promised, what is missing."""
    if not answer.alternatives:
        return
    wish, best = answer.wish, answer.alternatives[0]
    count = say.count_words(best.machine.cluster.gpus, "GPU")
    where = Sentence("{gpus} of {machine}", gpus=count, machine=best.machine.name)
    if best.good:
        facts = {"where": where, "parameters": say_short(best.parameters), "tokens": say_short(best.tokens),
                 "time": say.duration(best.days)}  # fmt: skip
        said = Sentence("Best: {where} train {parameters} parameters on {tokens} tokens in {time}.", **facts)
        if best.price.cost is not None:
            text = "Best: {where} train {parameters} parameters on {tokens} tokens in {time} for ${cost}."
            said = Sentence(text, cost=say_short(best.price.cost), **facts)
        yield join((said, *(Sentence(_LIMITS[limit]) for limit in best.limits if limit in _LIMITS)), " ")
        yield from _say_grounds(answer, best)
    elif not best.prediction.fits:
        text = "Nothing fits in memory; nearest is {where}. Try more GPUs (--gpus) or other clusters (--on)."
        yield Sentence(text, where=where)
    else:
        missed = join([quote(target) for target in best.misses], " and the ")
        yield Sentence("No alternative meets every target; nearest is {where}, which misses the {what}.", where=where, what=missed)
        yield from _say_nearest(answer)
    yield from _say_bought(best)
    if best.naive is not None and best.naive_days is not None and best.naive[0] > best.parameters:
        text = (
            "With the peak FLOP/s the law would give {parameters} parameters on {tokens} tokens, {times} times as large; "
            "that would take {time}."
        )
        yield Sentence(
            text, parameters=say_short(best.naive[0]), tokens=say_short(best.naive[1]),
            times=f"{best.naive[0] / best.parameters:.2g}", time=say.duration(best.naive_days),
        )  # fmt: skip
    space = Sentence("Plans are the best of a small space; `windtunnel search` looks further.")
    if wish.model is None:
        space = Sentence(
            "Models without --model follow one rule of shapes; plans are the best of a small space; "
            "`windtunnel search` looks further."
        )
    yield join((space, _lost_days(wish, best)), " ")
    if any("price" in row.assumed for row in answer.alternatives):
        yield Sentence(
            "$/h: dollars of an hour of a GPU; ?: the catalogue assumes them (--set cluster.price_per_gpu_hour=2.5 states yours). "
            "±: of the step, as a prediction states it."
        )
    for text in answer.left_out:
        yield Sentence("Left out: {what}", what=text)


def rent_or_buy_sheet(rented: Mapping[str, Any], bought: Mapping[str, Any] | None = None) -> Sheet:
    """Rented machines of the JSON of one plan, and the same ones bought of another, side by side."""
    also = {_machine_key(way): way for way in (bought or {}).get("alternatives", ())}
    pairs = [(way, way["cost"], (also.pop(_machine_key(way), None) or {}).get("cost")) for way in rented["alternatives"]]
    pairs += [(way, None, way["cost"]) for way in also.values()]
    heads = ("GPUs", "parameters", "tokens", "days", "loss", "rent ($)", "buy ($)", "±", "goodput", "MFU")
    columns = (Column("machine"), *(Column(head, True) for head in heads), Column("limited by"), Column("keeps all"))
    rows = tuple(_rent_or_buy_row(*pair) for pair in pairs)
    kept = "The first line keeps what was asked. Loss by {law}."
    missed = "Nothing keeps all that was asked; the first line misses least. Loss by {law}."
    said = Sentence(kept if rented["meets_all"] else missed, law=rented["law"]["name"])
    assumed = ", ".join(sorted({word for way in rented["alternatives"] for word in way["assumed"]}))
    note = (Lines((Sentence("Assumed, not from a source: {what}.", what=quote(assumed)),), mood="soft"),) if assumed else ()
    title = "To rent or to buy"
    return Sheet(title, title, (), (Section(title, (Lines((said,), mood="soft"), Table("rent-or-buy", columns, rows), *note)),))


def _machine_key(way: Mapping[str, Any]) -> tuple[str, int, str]:
    """What is the same machine and model; models of a law's best size differ in name alone."""
    return way["cluster"], way["gpus"], "" if str(way["model"]).startswith("decoder-") else str(way["model"])


def _rent_or_buy_row(way: Mapping[str, Any], rent: float | None, buy: float | None) -> tuple[Cell, ...]:
    nothing, loss = Cell("–"), way.get("loss")
    return (
        Cell(quote(way["cluster"])), Cell(f"{way['gpus']:,}", way["gpus"]), Cell(say.count(way["parameters"]), way["parameters"]),
        Cell(say.count(way["tokens"]), way["tokens"]), Cell(f"{way['days']:.1f}", way["days"]),
        nothing if loss is None else Cell(f"{loss:.4f}", loss),
        *(nothing if cost is None else Cell(f"{cost:,.0f}", cost) for cost in (rent, buy)),
        *(Cell(say.percent(way[name], digits), way[name]) for name, digits in (("relative_error", 1), ("ettr", 0), ("mfu", 1))),
        Cell(", ".join(way["limits"])), Cell("✓" if way["meets_all"] else "–"),
    )  # fmt: skip
