"""Reasons for the result of a search: what the best plans differ in, why a known plan is slower, what binds, which decision
matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.memory.result import USABLE
from windtunnel.search.bound.memory import room
from windtunnel.search.change import Change
from windtunnel.search.find import Candidate, Plans, Search, SearchLimits
from windtunnel.search.objective import Most, Objective, values_of
from windtunnel.search.outcome import PlanOutcome, outcome_of

TRIES = 12
"""Predictions for one question, beside those that the search has made."""
SPARE = 0.05
"""Share of a GPU's memory that a plan should keep free: peaks of memory are predicted 2 to 4 % off (docs/memory.md)."""


@dataclass(frozen=True)
class Decision:
    """A field whose best other value costs the share `loss` of the winner's objective. `exact`: no plan with another value is
    better; else the loss is at least `least`. `other` is None where no plan with another value fits."""

    path: str
    value: Any
    other: Any
    loss: float
    least: float
    exact: bool


@dataclass(frozen=True)
class Relaxed:
    """The best plan that lacks `missing` bytes on its fullest GPU; it would be better by the share `gain`."""

    candidate: Candidate
    missing: float
    gain: float


@dataclass(frozen=True)
class Roomier:
    """The best plan found that keeps the share `SPARE` of the memory free, where the winner keeps only `free` bytes; it is worse by
    the share `loss`."""

    candidate: Candidate
    free: float
    loss: float


@dataclass(frozen=True)
class Unlimited:
    """The best plan that fits without the limits; it would be better by the share `gain`. `needs`: for each limit that it misses,
    the limit and the plan's number."""

    candidate: Candidate
    gain: float
    needs: tuple[tuple[Most, float], ...]


@dataclass(frozen=True)
class OwnPlan:
    """The plan that the user brought beside the winner: `parts` [(part of the step, seconds more than the winner's)], largest
    first; none below 1 % of their sum."""

    outcome: PlanOutcome
    loss: float
    parts: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Explanation:
    """Reasons for `best`, the best plan in one objective; its `values` are that objective's alone."""

    objective: Objective
    best: Candidate
    decisions: tuple[Decision, ...]
    relaxed: Relaxed | None
    known: OwnPlan | None
    unlimited: Unlimited | None = None
    roomier: Roomier | None = None


def explain(
    search: Search, ranked: Sequence[Candidate], stop: Callable[[], bool] = lambda: False, margin: float = 0.0
) -> tuple[Explanation, ...]:
    """Reasons for the best of the `ranked` plans of a search, for each objective on its own. A later objective that is the same for
    all plans of the winner's frame, such as the number of GPUs, has none. `margin`: share of the memory that the search kept free;
    `stop` ends the work early."""
    found: list[Explanation] = []
    for number, objective in enumerate(search.objectives):
        best = min(ranked, key=lambda one: (one.values[number], one.row))
        bounds = search.plans.bound[search.plans.frame == best.frame, number]
        if found and (stop() or not np.ptp(bounds)):
            continue
        best = replace(best, values=(best.values[number],))
        found.append(_explain(_search_one_objective(search, number), objective, best, stop, margin))
    return tuple(found)


def _search_one_objective(search: Search, number: int) -> Search:
    """The same search for one of its objectives."""
    if len(search.objectives) == 1:
        return search
    plans = replace(search.plans, bound=search.plans.bound[:, number : number + 1])
    alone = Search(plans, search.objectives[number : number + 1], search.workers, search.store)
    alone.known = search.known
    return alone


def _explain(search: Search, objective: Objective, best: Candidate, stop: Callable[[], bool], margin: float) -> Explanation:
    decisions, known = _decisions(search, best, stop), _compare_own_plan(search, best)
    if stop():
        return Explanation(objective, best, decisions, None, known)
    roomier = _best_with_spare_memory(search, best) if margin == 0.0 else None
    return Explanation(objective, best, decisions, _best_beyond(search, best), known, _best_without_limits(search, best), roomier)


def _decisions(search: Search, best: Candidate, stop: Callable[[], bool]) -> tuple[Decision, ...]:
    """Every open field with several values, forced to its next best value."""
    plans = search.plans
    found = []
    paths = [path for path in plans.columns[best.frame].codes if len(plans.columns[best.frame].values[path]) > 1]
    for path in paths:
        if stop():
            break
        rows = _rows_with_another_value(plans, path, best)
        if not len(rows):
            continue
        value = plans.columns[best.frame].of(path, int(plans.row[best.row]))
        ranked, left = search.run(rows, SearchLimits(predictions=TRIES), known_first=True)
        least = float(plans.bound[rows, 0].min())
        if not ranked:
            if left == 0:
                found.append(Decision(path, value, None, np.inf, np.inf, True))
            continue
        other = ranked[0]
        found.append(
            Decision(
                path,
                value,
                plans.columns[other.frame].of(path, int(plans.row[other.row])),
                other.values[0] / best.values[0] - 1.0,
                max(0.0, min(least, other.values[0]) / best.values[0] - 1.0),
                left == 0,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.loss))


def _rows_with_another_value(plans: Plans, path: str, best: Candidate) -> np.ndarray:
    """Plans of the winner's frame that may fit and have another value of the field."""
    columns = plans.columns[best.frame]
    mine = (plans.frame == best.frame) & plans.may_fit
    own = columns.codes[path][plans.row[best.row]]
    rows = np.flatnonzero(mine)
    return np.asarray(rows[columns.codes[path][plans.row[rows]] != own])


def _best_beyond(search: Search, best: Candidate) -> Relaxed | None:
    """The best of the plans that would fit into twice the memory, if it is better than the winner."""
    plans = search.plans
    too_large = ~plans.may_fit
    for number, outcome in search.known.items():
        too_large[number] = not outcome.refused and outcome.missing > 0.0
    memory = np.array([job.cluster.gpu.memory for job in plans.jobs], np.float64)[plans.frame]
    rows = np.flatnonzero(too_large & (plans.bound[:, 0] < best.values[0]) & (plans.bytes < 2.0 * memory))
    if not len(rows):
        return None
    ranked, _ = search.run(rows, SearchLimits(predictions=TRIES), anyway=True)
    better = [one for one in ranked if one.values[0] < best.values[0] and one.outcome.missing > 0.0]
    if not better:
        return None
    return Relaxed(better[0], better[0].outcome.missing, 1.0 - better[0].values[0] / best.values[0])


def _best_with_spare_memory(search: Search, best: Candidate) -> Roomier | None:
    """The best plan that keeps memory free, if the winner fills it."""
    plans = search.plans
    spare = SPARE * np.array([USABLE * job.cluster.gpu.memory for job in plans.jobs], np.float64)
    if -best.outcome.missing >= spare[best.frame]:
        return None
    roomy = plans.may_fit & (plans.bytes <= _rooms(plans) - spare[plans.frame])
    for number, outcome in search.known.items():
        roomy[number] &= -outcome.missing >= spare[plans.frame[number]]
    ranked, _ = search.run(np.flatnonzero(roomy), SearchLimits(predictions=TRIES), known_first=True)
    for one in ranked:
        if -one.outcome.missing >= spare[one.frame]:
            return Roomier(one, -best.outcome.missing, one.values[0] / best.values[0] - 1.0)
    return None


def _rooms(plans: Plans) -> Floats:
    """[N] bytes that the allocator of each plan's GPUs may use at most."""
    return np.array([room(job) for job in plans.jobs], np.float64)[plans.frame]


def _best_without_limits(search: Search, best: Candidate) -> Unlimited | None:
    """The best plan without the limits, if they cost anything."""
    plans = search.plans
    if not plans.constraints:
        return None
    free = Search(replace(plans, constraints=()), search.objectives, search.workers, search.store)
    free.known = search.known
    rows = np.flatnonzero((plans.bytes <= _rooms(plans)) & (plans.bound[:, 0] < best.values[0]))
    ranked, _ = free.run(rows, SearchLimits(predictions=TRIES), known_first=True)
    if not ranked or ranked[0].values[0] >= best.values[0]:
        return None
    job = ranked[0].change.apply_unchecked(plans.jobs[ranked[0].frame])
    needs = values_of([most.objective for most in plans.constraints], job, ranked[0].outcome)
    missed = tuple((most, value) for most, value in zip(plans.constraints, needs, strict=True) if value > most.limit)
    return Unlimited(ranked[0], 1.0 - ranked[0].values[0] / best.values[0], missed) if missed else None


def _compare_own_plan(search: Search, best: Candidate) -> OwnPlan | None:
    """The frame's own plan, if it is another one."""
    job = search.plans.jobs[best.frame]
    if not best.change.without_no_ops(job).fields:
        return None
    outcome = outcome_of(job, Change(()), anyway=True)
    if outcome.refused or not outcome.breakdown or best.outcome.breakdown is None:
        return None
    mine, theirs = best.outcome.breakdown, outcome.breakdown
    more = {part: theirs.get(part, 0.0) - mine.get(part, 0.0) for part in {*mine, *theirs}}
    least = 0.01 * sum(seconds for seconds in more.values() if seconds > 0.0)
    parts = sorted(((part, seconds) for part, seconds in more.items() if seconds > least), key=lambda one: -one[1])
    value = values_of(search.objectives[:1], job, outcome)[0]
    return OwnPlan(outcome, value / best.values[0] - 1.0, tuple(parts[:3]))
