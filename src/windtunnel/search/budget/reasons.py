"""A plan from a budget, a deadline or a loss in words: what rows miss, and why the best one is the best."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.search.budget.alternative import Alternative
from windtunnel.search.budget.planner import Planned
from windtunnel.search.budget.wish import Wish
from windtunnel.sheet import numbers as say
from windtunnel.sheet.sentence import Sentence, join, quote

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
