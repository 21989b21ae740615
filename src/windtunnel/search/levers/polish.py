"""Levers in a search: switches that are set on beforehand, and the best plan with every lever that still helps it.

A space with all switches open would be thousands of times as large. Those of the runtime rarely cost time, so they are set where
they help the job's own plan; at the winner every lever of the list is tried again, until none helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from windtunnel.base.errors import WindtunnelError
from windtunnel.search.change import Change, predict_or_none
from windtunnel.search.facts import facts_of
from windtunnel.search.find import Candidate
from windtunnel.search.levers.pricing import PricedLever, price_levers
from windtunnel.search.objective import Most, Objective, values_of
from windtunnel.search.outcome import outcome_of
from windtunnel.search.space import Values
from windtunnel.spec import Job

LEAST = 1e-3
"""Share of the step from which a lever is pulled."""

MOST_PULLED = 12
"""Levers that are pulled one after the other."""

APART = ("runtime.launch", "runtime.host", "runtime.data")
"""Fields that are not set beforehand: a way to launch brings costs of its own, the reader of data is another choice."""


def set_beforehand(job: Job, fixed: AbstractSet[str]) -> dict[str, Values]:
    """Switches of the runtime that shorten the job's own plan and cost it no memory, each by path with its one value; none of
    `fixed`."""
    try:
        base = facts_of(job)
    except WindtunnelError:
        return {}
    step, taken = base.step_time_s, Change(())
    for one in price_levers(base):
        paths = {path for path, _ in one.change.fields}
        if one.gain <= LEAST or paths & fixed or not all(p.startswith("runtime.") and not p.startswith(APART) for p in paths):
            continue
        if any(path in paths for path, _ in taken.fields):
            continue
        both = taken + one.change
        after = predict_or_none(job, both)
        if after is not None and after.step_time_s < step * (1.0 - LEAST) and after.fullest <= base.fullest:
            step, taken = after.step_time_s, both
    return {path: (value,) for path, value in taken.fields}


def pull_levers(
    job: Job,
    best: Candidate,
    objective: Objective,
    constraints: Sequence[Most],
    margin: float,
    fixed: AbstractSet[str],
) -> tuple[Candidate, tuple[PricedLever, ...]]:
    """The best plan with every lever that makes it better and fits with the margin, and those levers in their order; `job` is that
    of its frame. Levers of `fixed` fields stay."""
    pulled: list[PricedLever] = []
    for _ in range(MOST_PULLED):
        try:
            base = facts_of(best.change.apply(job))
        except WindtunnelError:
            break
        for one in price_levers(base, 0.0):
            usable = one.gain > LEAST and not one.trains_otherwise and not {path for path, _ in one.change.fields} & fixed
            if usable and not any(path.startswith(("cluster.", "unequal")) for path, _ in one.change.fields):
                after = _with_lever(job, best, one, objective, constraints, margin)
                if after is not None:
                    best = after
                    pulled.append(one)
                    break
        else:
            break
    return best, tuple(pulled)


def _with_lever(
    job: Job, best: Candidate, one: PricedLever, objective: Objective, constraints: Sequence[Most], margin: float
) -> Candidate | None:
    """The plan with one more lever; None if it does not fit, breaks a limit, or is no better."""
    change = Change(tuple((dict(best.change.fields) | dict(one.change.fields)).items()))
    outcome = outcome_of(job, change, margin)
    if not outcome.fits:
        return None
    after = change.apply_unchecked(job)
    values = values_of([objective], after, outcome)
    limited = values_of([most.objective for most in constraints], after, outcome)
    if any(value > most.limit for value, most in zip(limited, constraints, strict=True)):
        return None
    return replace(best, change=change, outcome=outcome, values=values) if values[0] < best.values[0] * (1.0 - LEAST) else None
