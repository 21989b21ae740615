"""A plan from a budget, a deadline or a loss as plain data."""

from __future__ import annotations

from typing import Any

from windtunnel.search.budget.planner import Planned
from windtunnel.search.budget.wish import Alternative
from windtunnel.spec import load_runtime

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
