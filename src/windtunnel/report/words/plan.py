"""A plan from a budget, a deadline or a loss in words: rows, what they miss, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windtunnel.search.budget.alternative import Alternative
from windtunnel.search.budget.planner import Planned
from windtunnel.search.budget.wish import Wish
from windtunnel.sheet import numbers as say
from windtunnel.spec import load_runtime

LIMITS = {"deadline": "The deadline binds", "budget": "The budget binds"}


SHOWN = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "micro_batch",
    "global_batch",
    "seq",
    "recompute",
    "sequence_parallel",
    "sharding",
    "schedule",
    "stages",
)
"""Fields of the plan that make `predict` show it again."""


def stated_fields(one: Alternative) -> dict[str, Any]:
    """The plan's fields SHOWN that have a value, and the runtime's that differ from the framework's defaults."""
    plan, runtime = one.prediction.job.plan, one.prediction.job.runtime
    usual = load_runtime(runtime.framework)
    own = {f"plan.{name}": getattr(plan, name) for name in SHOWN if getattr(plan, name) is not None}
    changed = {
        name: getattr(runtime, name) for name in type(runtime).model_fields if getattr(runtime, name) != getattr(usual, name)
    }
    return own | {f"runtime.{name}": value for name, value in changed.items() if isinstance(value, str | int | float)}


def format_value(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value).lower() if isinstance(value, bool | tuple) else str(value)


def say_hourly(one: Alternative) -> str:
    """Dollars of a GPU and hour; a question mark where the catalogue assumes them."""
    each = one.machine.dollars_per_gpu_hour
    return "-" if each is None else f"{each:.2f}" + ("?" if "price" in one.assumed else "")


def say_missed(one: Alternative) -> str:
    """What a row misses, by how much: `over by $740k`; empty for one that meets all."""
    parts = [] if one.prediction.fits else ["does not fit"]
    for target, value in one.beyond.items():
        words = {"budget": f"over by ${say_short(value)}", "deadline": f"late by {say_days(value)}"}
        parts.append(words.get(target, f"lacks {say_short(value)} {target}"))
    return ", ".join(parts)


def say_days(days: float) -> str:
    """`12 days`, `1.4 days`, `9 hours`."""
    return f"{days:,.0f} days" if days >= 10.0 else f"{days:.1f} days" if days >= 1.0 else f"{24.0 * days:.1f} hours"


def say_layout(one: Alternative) -> str:
    """The plan in words: degrees above 1, recompute."""
    plan, dp = one.prediction.job.plan, one.prediction.job.dp
    degrees = {"vpp": plan.vpp, "cp": plan.cp, "ep": plan.ep}
    layout = (
        f"tp {plan.tp} pp {plan.pp}" + "".join(f" {name} {value}" for name, value in degrees.items() if value > 1) + f" dp {dp}"
    )
    return layout if plan.recompute == "none" else f"{layout}, recompute {plan.recompute}"


def _lost_days(wish: Wish, best: Alternative) -> str:
    if best.prediction.job.reliability is not None:
        return f"{say.percent(best.ettr, 1)} of the days count, by the failures of {best.prediction.job.reliability.id}."
    if wish.goodput == 1.0:
        return "Days are without failures and restarts."
    return f"{say.percent(wish.goodput, 0)} of the days count."


def _say_dollars(one: Alternative) -> str:
    return "" if one.price.cost is None else f" for ${say_short(one.price.cost)}"


def _say_row(one: Alternative) -> str:
    """A row in a sentence."""
    where = f"{one.machine.cluster.gpus:,} GPUs of {one.machine.name}"
    return f"{where} ({say.duration(one.days)}{_say_dollars(one)}, loss {one.loss:.3f})"


def _say_grounds(answer: Planned, best: Alternative) -> Iterator[str]:
    """What the winner assumes, beside the best row that does not."""
    words = {"price": f"its price of ${say_hourly(best).rstrip('?')} an hour", "kernels": "the time of its kernels"}
    for which in best.assumed:
        error = f", ±{100 * best.prediction.relative_error:.0f} %" if which == "kernels" else ""
        other = next((one for one in answer.alternatives if one.good and which not in one.assumed), None)
        if which == "price" and other is None:
            continue  # the line about ? says it of all
        beside = (
            f"the best row that does not assume it is {_say_row(other)}"
            if other
            else "so does every other row that meets the targets"
        )
        yield f"The winner rests on an assumption: {words[which]}{error}; {beside}."


def _say_nearest(answer: Planned) -> Iterator[str]:
    """For a wish of several targets, what would have to give: the row that misses each alone."""
    wish = answer.wish
    rows = [one for one in answer.alternatives if one.prediction.fits]
    if wish.budget is None or wish.days is None or not wish.work_is_fixed:
        return
    in_time = min((one for one in rows if "deadline" not in one.beyond), key=lambda one: one.price.cost or 0.0, default=None)
    in_money = min((one for one in rows if "budget" not in one.beyond), key=lambda one: one.days, default=None)
    if in_time is not None:
        yield f"In time the cheapest is {_say_row(in_time)}."
    if in_money is not None:
        yield f"Within the budget the quickest is {_say_row(in_money)}."


def _say_bought(best: Alternative) -> Iterator[str]:
    """What buying the winner takes."""
    own = best.ownership
    if own is None:
        return
    share = best.days / 365.25 / own.years
    even = (
        "rent would never cost more"
        if own.months is None
        else f"rent would have cost as much after {own.months:.0f} months of such use"
    )
    yield (
        f"Bought: the machine costs ${say_short(own.capital)} on the first day; the run pays its share of {own.years:g} years "
        f"({say.percent(share, 1)}); {even}."
    )


def say_short(number: float) -> str:
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.3g}"


def say_question(wish: Wish) -> str:
    parts = []
    if wish.budget is not None:
        parts.append(f"{say.dollars(wish.budget)}")
    if wish.days is not None:
        parts.append(f"{wish.days:g} days")
    if wish.loss is not None:
        parts.append(f"a loss of {wish.loss:g}")
    if wish.parameters is not None:
        parts.append(f"{say_short(wish.parameters)} parameters")
    if wish.tokens is not None:
        parts.append(f"{say_short(wish.tokens)} tokens")
    if wish.tokens_per_parameter is not None:
        parts.append(f"{wish.tokens_per_parameter:g} tokens a parameter")
    return f"For {' and '.join(parts)}, by the scaling law {wish.law.id}"


def reasons(answer: Planned) -> Iterator[str]:
    """Sentences: the best alternative and what stops it, what the peak would have promised, what is missing."""
    if not answer.alternatives:
        return
    wish, best = answer.wish, answer.alternatives[0]
    count = best.machine.cluster.gpus
    where = f"{count:,} {'GPU' if count == 1 else 'GPUs'} of {best.machine.name}"
    if best.good:
        what = f"{say_short(best.parameters)} parameters on {say_short(best.tokens)} tokens in {say.duration(best.days)}"
        binding = "".join(f" {LIMITS[limit]}." for limit in best.limits if limit in LIMITS)
        yield f"\nBest: {where} train {what}{_say_dollars(best)}.{binding}"
        yield from _say_grounds(answer, best)
    elif not best.prediction.fits:
        yield f"\nNothing fits in memory; nearest is {where}. Try more GPUs (--gpus) or other clusters (--on)."
    else:
        yield f"\nNo alternative meets every target; nearest is {where}, which misses the {' and the '.join(best.misses)}."
        yield from _say_nearest(answer)
    yield from _say_bought(best)
    if best.naive is not None and best.naive_days is not None and best.naive[0] > best.parameters:
        yield (
            f"With the peak FLOP/s the law would give {say_short(best.naive[0])} parameters on "
            f"{say_short(best.naive[1])} tokens, "
            f"{best.naive[0] / best.parameters:.2g} times as large; that would take {say.duration(best.naive_days)}."
        )
    rule = "" if wish.model is not None else "Models without --model follow one rule of shapes; "
    space = f"{'p' if rule else 'P'}lans are the best of a small space; `windtunnel search` looks further."
    yield f"{rule}{space} {_lost_days(wish, best)}"
    if any("price" in one.assumed for one in answer.alternatives):
        yield (
            "$/h: dollars of an hour of a GPU; ?: the catalogue assumes them (--set cluster.price_per_gpu_hour=2.5 states yours). "
            "±: of the step, as a prediction states it."
        )
    for text in answer.left_out:
        yield f"Left out: {text}"
