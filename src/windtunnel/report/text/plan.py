"""Alternatives of `windtunnel plan` as a table, with reasons, and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, JustifyMethod
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.report.words.plan import (
    format_value,
    reasons,
    say_hourly,
    say_layout,
    say_missed,
    say_question,
    say_short,
    stated_fields,
)
from windtunnel.search.budget.alternative import Alternative
from windtunnel.search.budget.planner import Planned
from windtunnel.sheet import numbers as say

SCHEMA = "windtunnel.plan/1"


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
        "dollars_per_gpu_hour": one.machine.dollars_per_gpu_hour,
        "relative_error": p.relative_error,
        "assumed": list(one.assumed),
        "beyond": dict(one.beyond),
        "ettr": one.ettr,
        "ownership": None if one.ownership is None else vars(one.ownership),
        "mfu": p.mfu,
        "fits": p.fits,
        "plan": plan.model_dump(mode="json", exclude_none=True) | {"dp": p.job.dp},
        "sets": [f"{key}={format_value(value)}" for key, value in stated_fields(one).items()],
        "limits": list(one.limits),
        "misses": list(one.misses),
        "meets_all": one.good,
        "naive": None if one.naive is None else {"parameters": one.naive[0], "tokens": one.naive[1], "days": one.naive_days},
    }


ROOMY = 90
"""Columns of a terminal in which the table has room to spare."""

WIDE = 130
"""Columns of a terminal in which it also shows the energy."""

Column = tuple[str, JustifyMethod, Callable[[Alternative], str]]


def show(answer: Planned, console: Console | None = None) -> None:
    """Print the table and its reasons."""
    out = console or Console(highlight=False)
    out.print(Text(say_question(answer.wish), style="bold"))
    columns = _columns(answer.alternatives, out.width)
    table = listing(*((head, side) for head, side, _ in columns), wraps=("plan",), gap=2 if out.width >= ROOMY else 1)
    for one in answer.alternatives:
        table.add_row(*(Text(cell(one)) for _, _, cell in columns), style="" if one.good else "dim")
    out.print(table)
    for line in reasons(answer):
        out.print(Text(line))


def _columns(rows: Sequence[Alternative], width: int) -> list[Column]:
    """The columns that say something: what is the same in all rows, such as a stated model, stands above the table."""
    same_work = len({(one.parameters, one.tokens) for one in rows}) == 1 and len(rows) > 1
    work: list[Column] = [
        ("model", "right", lambda one: say_short(one.parameters)),
        ("tokens", "right", lambda one: say_short(one.tokens)),
        ("loss", "right", lambda one: f"{one.loss:.3f}"),
    ]
    energy: Column = ("MWh", "right", lambda one: "-" if one.price.energy_j is None else f"{one.price.energy_j / 3.6e9:,.0f}")
    mfu: Column = ("MFU", "right", lambda one: say.percent(one.prediction.mfu, 0))
    capital: Column = ("capital", "right", lambda one: "-" if one.ownership is None else say_short(one.ownership.capital))
    return [
        ("cluster", "left", lambda one: one.machine.name),
        ("GPUs", "right", lambda one: f"{one.machine.cluster.gpus:,}"),
        ("$/h", "right", say_hourly),
        *(() if same_work else work),
        ("days", "right", lambda one: f"{one.days:,.1f}"),
        ("$", "right", lambda one: "-" if one.price.cost is None else say_short(one.price.cost)),
        *([capital] if any(one.ownership is not None for one in rows) else []),
        *([("misses", "left", say_missed)] if any(not one.good for one in rows) else []),
        *([energy] if width >= WIDE else []),
        ("±", "right", lambda one: f"{100 * one.prediction.relative_error:.0f} %" + ("?" if "kernels" in one.assumed else "")),
        *([mfu] if width >= ROOMY else []),
        ("batch", "right", lambda one: f"{one.prediction.job.plan.global_batch:,}"),
        ("plan", "left", say_layout),
    ]
