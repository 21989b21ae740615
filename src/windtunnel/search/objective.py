"""What a search makes small: one number of a plan, and a lower bound of it that follows from the bound of the step. Pareto fronts:
which of several things no other beats in every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.compute.power import watts_of
from windtunnel.goodput import run_of
from windtunnel.predict.answer.money import DAY, HOUR, KWH, tariff_of
from windtunnel.predict.answer.power import cluster_watts
from windtunnel.predict.answer.silicon import lacks_silicon, silicon_of
from windtunnel.predict.price.costs import slowdown
from windtunnel.search.outcome import PlanOutcome
from windtunnel.sheet.numbers import count
from windtunnel.spec import Job


@dataclass(frozen=True)
class Least:
    """Lower bounds of N plans of one job: `seconds` of a step; `computing` [N, 2] seconds of the mean GPU in it, and of products
    and attention alone. `tokens` of a step."""

    seconds: Floats
    computing: Floats
    tokens: Floats


@dataclass(frozen=True)
class Objective:
    """What a search minimises: `value` of a plan, from its outcome and the tokens of a step."""

    name: str
    unit: str
    value: Callable[[Job, PlanOutcome, int], float]
    bound: Callable[[Job, Least], Floats]
    """The least value that a plan can have."""
    shown: Callable[[float], float] = float
    """The number that people read, in `unit`; larger may be better."""
    needs: Callable[[Job], str] = lambda job: ""
    """Why a job has no such number."""


def _per_token(value: float) -> float:
    return 1.0 / value if value else 0.0


def _lacks_price(job: Job) -> str:
    if tariff_of(job.cluster).dollars_per_hour is None:
        return "The cluster states no price: --set cluster.price_per_gpu_hour=2.5."
    return ""


def _lacks_power(job: Job) -> str:
    return "" if watts_of(job.cluster.gpu) is not None else "The GPU states no power: --set cluster.node.gpu.power_w=700."


def _joules(job: Job, least: Least) -> Floats:
    """Least joules of a step, from the least seconds of each kind of kernel; for the rest GPUs draw what they draw when idle.

    The cluster's watts grow with those of a GPU, and no faster than in proportion, so their chord is a lower bound."""
    watts = watts_of(job.cluster.gpu)
    if watts is None:
        return np.zeros_like(least.seconds)
    idle, busy = min(watts.static, watts.waiting, watts.communicating), min(watts.memory, watts.tensor)
    most = max(watts.tensor, busy)
    low, high = (cluster_watts(job.cluster, each).total for each in (idle, most))
    slope = (high - low) / (most - idle) if most > idle else 0.0
    computing, tensor = np.minimum(least.computing / slowdown(job.cluster), least.seconds[:, None]).T
    more = max(0.0, busy - idle) * computing + max(0.0, watts.tensor - busy) * tensor
    return np.asarray(low * least.seconds + slope * more, np.float64)


def _dollars(job: Job, least: Least) -> Floats:
    """Least dollars of a step."""
    tariff = tariff_of(job.cluster)
    hourly = sum((tariff.dollars_per_hour or {}).values())
    power = tariff.dollars_per_kwh * _joules(job, least) / KWH if tariff.dollars_per_kwh else 0.0
    return np.asarray(hourly * least.seconds / HOUR + power, np.float64)


def _per_silicon(job: Job, what: str) -> float:
    """mm2 of dies or US dollars of silicon of all GPUs; 0 where they are not known."""
    found = silicon_of(job.cluster.node)
    return 0.0 if found is None else float(getattr(found, what)) * job.cluster.gpus


def _tokens_of_silicon(name: str, unit: str, what: str) -> Objective:
    """Most tokens a second for the `what` of all GPUs' silicon."""
    return Objective(
        name,
        unit,
        lambda job, of, _: _per_silicon(job, what) / of.tokens_per_s,
        lambda job, least: _per_silicon(job, what) * least.seconds / least.tokens,
        _per_token,
        lambda job: lacks_silicon(job.cluster.node),
    )


def _lacks_tokens(job: Job) -> str:
    return "" if job.tokens is not None else "The job states no tokens of the whole run: --set tokens=2e12."


def _days(job: Job, step: float) -> float:
    """Days of the whole run with steps of `step` seconds, with failures if the job states them; infinite if it never ends."""
    if job.reliability is None:
        return (job.tokens or 0.0) / (job.plan.global_batch * job.plan.seq) * step / DAY
    days = run_of(job, step).days
    return math.inf if days is None else days


def _least_days(job: Job, least: Least) -> Floats:
    """Longer steps make longer runs: the days at the next shorter step of a grid. First starts differ by seconds between plans."""
    out = np.zeros_like(least.seconds)
    for tokens in np.unique(least.tokens).tolist():
        rows = np.flatnonzero((least.tokens == tokens) & (least.seconds > 0.0))
        if len(rows):
            batch = round(tokens / job.plan.seq)
            same = job.model_copy(update={"plan": job.plan.model_copy(update={"global_batch": batch})})
            seconds = least.seconds[rows]
            grid = np.geomspace(seconds.min(), seconds.max(), GRID)
            days = np.array([_days(same, step) for step in grid.tolist()])
            out[rows] = days[np.clip(np.searchsorted(grid, seconds, "right") - 1, 0, GRID - 1)] * (1.0 - SLACK)
    return out


SLACK = 1e-3
"""Share that first starts may take of a run, and more than the error of its days between plans."""

GRID = 400
"""Step times at which the days of a run are computed for bounds."""

MILLION = 1e6

OBJECTIVES: dict[str, Objective] = {
    each.name: each
    for each in (
        Objective("time", "s a step", lambda job, of, _: of.step_time_s, lambda job, least: least.seconds),
        Objective(
            "tokens",
            "tokens/s",
            lambda job, of, _: 1.0 / of.tokens_per_s,
            lambda job, least: least.seconds / least.tokens,
            _per_token,
        ),
        Objective(
            "dollars",
            "$ a million tokens",
            lambda job, of, tokens: (of.cost_per_step or 0.0) / tokens * MILLION,
            lambda job, least: _dollars(job, least) / least.tokens * MILLION,
            needs=_lacks_price,
        ),
        Objective(
            "joules",
            "J a token",
            lambda job, of, tokens: (of.energy_j_per_step or 0.0) / tokens,
            lambda job, least: _joules(job, least) / least.tokens,
            needs=_lacks_power,
        ),
        Objective("days", "days of the run", lambda job, of, _: _days(job, of.step_time_s), _least_days, needs=_lacks_tokens),
        Objective(
            "bill",
            "$ of the run",
            lambda job, of, _: _days(job, of.step_time_s) * DAY * (of.cost_per_step or 0.0) / of.step_time_s,
            lambda job, least: _least_days(job, least) * DAY * _dollars(job, least) / np.maximum(least.seconds, 1e-12),
            needs=lambda job: _lacks_tokens(job) or _lacks_price(job),
        ),
        Objective(
            "gpus",
            "GPUs",
            lambda job, of, _: float(job.cluster.gpus),
            lambda job, least: np.full(len(least.seconds), float(job.cluster.gpus)),
        ),
        _tokens_of_silicon("area", "tokens/s a mm2 of dies", "area"),
        _tokens_of_silicon("silicon", "tokens/s a $ of silicon", "dollars"),
    )
}
"""The registry: one entry an objective."""


@dataclass(frozen=True)
class Most:
    """A constraint: an objective's number (as people read it) may be at most `limit`."""

    objective: Objective
    limit: float


MEANT = {
    "dollars": ("money", "cost", "price", "usd", "$"),
    "joules": ("energy", "power", "watts", "carbon"),
    "tokens": ("throughput", "speed"),
    "time": ("step", "seconds", "mfu", "latency"),
    "days": ("duration", "deadline", "goodput"),
    "bill": ("budget", "total"),
    "area": ("mm2", "die"),
    "silicon": ("wafer", "bom"),
}
"""Other words that people use, by objective."""


def values_of(of: Sequence[Objective], job: Job, outcome: PlanOutcome) -> tuple[float, ...]:
    """Values of a predicted plan; `job` has the plan."""
    tokens = job.plan.global_batch * job.plan.seq
    return tuple(each.value(job, outcome, tokens) for each in of)


def number_of(objective: Objective, value: float) -> str:
    """A value of an objective as people read it, without its unit."""
    shown = objective.shown(value)
    return count(shown) if shown >= 1e4 else f"{shown:,.4g}"


def amount(value: float) -> str:
    """The number of a limit as people read it, large ones to the last digit."""
    return f"{value:,.0f}" if value >= 1e4 else f"{value:,.4g}"


def objectives(names: str) -> tuple[Objective, ...]:
    """Objectives of a list separated by commas; UnknownName for another, SpecError for one that is named twice."""
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in OBJECTIVES:
            meant = next((own for own, words in MEANT.items() if name.lower() in words), None)
            raise UnknownName("--objective", name, tuple(OBJECTIVES), meant)
    if len(set(wanted)) < len(wanted):
        raise SpecError("--objective", names, "each objective once")
    return tuple(OBJECTIVES[name] for name in wanted)


def tokens_of(job: Job, global_batch: Int64s) -> Floats:
    """Tokens of a step for columns of batches."""
    return np.asarray(global_batch * float(job.plan.seq), np.float64)


Thing = TypeVar("Thing")


def beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `one` is nowhere larger than `other`, and not equal to it."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


def front_first(things: Iterable[Thing], values: Callable[[Thing], Sequence[float]]) -> tuple[list[Thing], int]:
    """The things that no other beats, then the rest, each in the order given; and how many the first are."""
    listed = list(things)
    front: list[Thing] = []
    rest: list[Thing] = []
    for one in listed:
        (rest if any(beats(values(other), values(one)) for other in listed) else front).append(one)
    return front + rest, len(front)
