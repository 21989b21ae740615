"""Alternatives of `windtunnel plan` as a table, with reasons, and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from windtunnel.report.text.table import listing
from windtunnel.report.words import numbers as say
from windtunnel.search.budget.planner import Alternative, Planned
from windtunnel.search.budget.wish import Wish
from windtunnel.spec import load_runtime

SCHEMA = "windtunnel.plan/1"
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


def as_dict(answer: Planned) -> dict[str, Any]:
    """Plain data with stable keys; SI units, US dollars, nats."""
    wish = answer.wish
    return {
        "schema": SCHEMA,
        "wish": {
            "budget": wish.budget,
            "days": wish.days,
            "loss": wish.loss,
            "parameters": wish.parameters,
            "tokens": wish.tokens,
            "tokens_per_parameter": wish.tokens_per_parameter,
            "goodput": wish.goodput,
        },
        "law": wish.law.model_dump(mode="json"),
        "alternatives": [_row(one) for one in answer.alternatives],
        "meets_all": any(one.good for one in answer.alternatives),
        "left_out": list(answer.left_out),
    }


def _row(one: Alternative) -> dict[str, Any]:
    p = one.prediction
    plan = p.job.plan
    return {
        "cluster": one.machine.name,
        "gpu": one.machine.cluster.gpu.id,
        "gpus": one.machine.cluster.gpus,
        "model": p.job.model.name,
        "parameters": one.parameters,
        "tokens": one.tokens,
        "loss": one.loss,
        "days": one.days,
        "cost": one.price.cost,
        "cost_parts": one.price.cost_parts,
        "energy_j": one.price.energy_j,
        "carbon_kg": one.price.carbon_kg,
        "step_time_s": p.step_time_s,
        "tokens_per_s": p.tokens_per_s,
        "flops": one.flops,
        "mfu": p.mfu,
        "fits": p.fits,
        "plan": plan.model_dump(mode="json", exclude_none=True) | {"dp": p.job.dp},
        "sets": [f"{key}={_format_value(value)}" for key, value in _stated_fields(one).items()],
        "limits": list(one.limits),
        "misses": list(one.misses),
        "meets_all": one.good,
        "naive": None if one.naive is None else {"parameters": one.naive[0], "tokens": one.naive[1], "days": one.naive_days},
    }


def _stated_fields(one: Alternative) -> dict[str, Any]:
    """The plan's fields SHOWN that have a value, and the runtime's that differ from the framework's defaults."""
    plan, runtime = one.prediction.job.plan, one.prediction.job.runtime
    usual = load_runtime(runtime.framework)
    own = {f"plan.{name}": getattr(plan, name) for name in SHOWN if getattr(plan, name) is not None}
    changed = {
        name: getattr(runtime, name) for name in type(runtime).model_fields if getattr(runtime, name) != getattr(usual, name)
    }
    return own | {f"runtime.{name}": value for name, value in changed.items() if isinstance(value, str | int | float)}


def _format_value(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value).lower() if isinstance(value, bool | tuple) else str(value)


ROOMY = 90
"""Columns of a terminal in which the table has room to spare."""


def show(answer: Planned, console: Console | None = None) -> None:
    """Print the table and its reasons."""
    out = console or Console(highlight=False)
    out.print(Text(_question(answer.wish), style="bold"))
    table = listing(
        ("cluster", "left"),
        ("GPUs", "right"),
        ("model", "right"),
        ("tokens", "right"),
        ("loss", "right"),
        ("days", "right"),
        ("$", "right"),
        ("MWh", "right"),
        ("MFU", "right"),
        ("plan", "left"),
        wraps=("plan",),
        gap=2 if out.width >= ROOMY else 1,
    )
    for one in answer.alternatives:
        table.add_row(*(Text(cell) for cell in _cells(one)), style="" if one.good else "dim")
    out.print(table)
    for line in reasons(answer):
        out.print(Text(line))


def _cells(one: Alternative) -> list[str]:
    p, cost = one.prediction, one.price.cost
    plan = p.job.plan
    layout = f"tp {plan.tp} pp {plan.pp}" + (f" vpp {plan.vpp}" if plan.vpp > 1 else "") + f" dp {p.job.dp}"
    if plan.recompute != "none":
        layout += f", recompute {plan.recompute}"
    return [
        one.machine.name,
        f"{one.machine.cluster.gpus:,}",
        _format_short(one.parameters),
        _format_short(one.tokens),
        f"{one.loss:.3f}",
        f"{one.days:,.1f}",
        "-" if cost is None else _format_short(cost),
        "-" if one.price.energy_j is None else f"{one.price.energy_j / 3.6e9:,.0f}",
        say.percent(p.mfu, 0),
        layout if p.fits else f"{layout}; DOES NOT FIT",
    ]


def _lost_days(wish: Wish) -> str:
    if wish.goodput == 1.0:
        return "Days are without failures and restarts."
    return f"{say.percent(wish.goodput, 0)} of the days count."


def _format_short(number: float) -> str:
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.3g}"


def _question(wish: Wish) -> str:
    parts = []
    if wish.budget is not None:
        parts.append(f"{say.dollars(wish.budget)}")
    if wish.days is not None:
        parts.append(f"{wish.days:g} days")
    if wish.loss is not None:
        parts.append(f"a loss of {wish.loss:g}")
    if wish.parameters is not None:
        parts.append(f"{_format_short(wish.parameters)} parameters")
    if wish.tokens is not None:
        parts.append(f"{_format_short(wish.tokens)} tokens")
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
        what = f"{_format_short(best.parameters)} parameters on {_format_short(best.tokens)} tokens in {say.duration(best.days)}"
        binding = "".join(f" {LIMITS[limit]}." for limit in best.limits if limit in LIMITS)
        yield f"\nBest: {where} train {what}.{binding}"
    elif not best.prediction.fits:
        yield f"\nNothing fits in memory; nearest is {where}. Try more GPUs (--gpus) or other clusters (--on)."
    else:
        yield f"\nNo alternative meets every target; nearest is {where}, which misses the {' and the '.join(best.misses)}."
    if best.naive is not None and best.naive_days is not None and best.naive[0] > best.parameters:
        yield (
            f"With the peak FLOP/s the law would give {_format_short(best.naive[0])} parameters on "
            f"{_format_short(best.naive[1])} tokens, "
            f"{best.naive[0] / best.parameters:.2g} times as large; that would take {say.duration(best.naive_days)}."
        )
    yield (
        "Models without --model follow one rule of shapes; plans are the best of a small space; `windtunnel search` looks further. "
        + _lost_days(wish)
    )
    for text in answer.left_out:
        yield f"Left out: {text}"
