"""The result of a search.

The best plans of a search once more, with another network than the closed form that bounds and proof rest on.

Reasons for the result of a search: what the best plans differ in, why a known plan is slower, what binds, which decision matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.memory.result import USABLE
from windtunnel.predict import predict
from windtunnel.search.bound.memory import room
from windtunnel.search.change import Change, value_of
from windtunnel.search.find import Candidate, Certificate, Plans, Search, SearchLimits
from windtunnel.search.levers.pricing import PricedLever
from windtunnel.search.objective import Most, Objective, values_of
from windtunnel.search.outcome import PlanOutcome, outcome_of
from windtunnel.search.space import CORE
from windtunnel.spec import Job, Noun

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


@dataclass(frozen=True)
class SearchResult:
    """The best plans of a space, and what became of the others. `jobs` and `labels` are those of the frames."""

    jobs: tuple[Job, ...]
    labels: tuple[str, ...]
    objectives: tuple[Objective, ...]
    ranked: tuple[Candidate, ...]
    """Predicted plans that fit, best first; with several objectives the undominated ones, `front` of them, first."""
    front: int
    certificate: Certificate
    explanations: tuple[Explanation, ...] = ()
    """One for each objective that has reasons."""
    command: str = ""
    """How to predict the best plan from a command line, if the search came from one."""
    own: str = "Your plan"
    """What reports call the frames' own plans."""

    pulled: tuple[PricedLever, ...] = ()
    """Levers outside of the space that the first plan has beside those of the best plan of the space, which then stands second."""
    margin: float = 0.0
    """Share of the memory that plans keep free."""
    first: PricedLever | None = None
    """The one lever that gains most on the job's own plan."""
    machines: tuple[Candidate, ...] = ()
    """The best plan found on each cluster, where there are several."""
    again: tuple[tuple[int, float], ...] = ()
    """(place, seconds) of the first plans with another network than the closed form, the quickest first."""
    network: str = "closed"
    """The network of `again`."""

    def where(self, candidate: Candidate) -> str:
        """The machine of a plan: `512 x NVIDIA B200 (b200-ib)`."""
        cluster = self.jobs[candidate.frame].cluster
        return f"{cluster.gpus:,} x {cluster.gpu.name or cluster.gpu.id} ({cluster.id})"

    @property
    def best(self) -> Candidate | None:
        return self.ranked[0] if self.ranked else None

    @property
    def explanation(self) -> Explanation | None:
        """The reasons for the best plan in the first objective; None if the search was stopped before."""
        return self.explanations[0] if self.explanations else None

    def job_of(self, candidate: Candidate) -> Job:
        """The job of a plan."""
        return candidate.change.apply(self.jobs[candidate.frame])

    def fields(self, candidate: Candidate) -> Mapping[str, Any]:
        """Fields that the search set, without those that other fields imply."""
        implied = {"plan.dp", "plan.sequence_parallel", "plan.shard_group", "plan.recompute_modules", "plan.recompute_layers"}
        return {
            path: value
            for path, value in candidate.change.fields
            if (path not in implied or path == "plan.recompute_modules" and self._chose_modules(candidate))
            and not (path.startswith("runtime.") and value_of(self.jobs[candidate.frame], path) == value)
            and not isinstance(value, Noun)
            and not (path == "plan.stages" and value is None)
            and not (path == "plan.schedule" and value == "auto")
        }

    def _chose_modules(self, candidate: Candidate) -> bool:
        """Whether the plan runs other modules again than usual."""
        plan = candidate.change.apply_unchecked(self.jobs[candidate.frame]).plan
        return plan.recompute == "selective" and plan.recompute_modules != CORE

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON. `relative_error` of a step is stated for the first MOST plans, and null for others."""
        return {
            "objectives": [each.name for each in self.objectives],
            "plans": [
                self._plan(one, self.objectives) | {"relative_error": self._error(place)} for place, one in enumerate(self.ranked)
            ],
            "front": self.front,
            "certificate": vars(self.certificate) | {"exact": self.certificate.exact},
            "explanations": [self._why(one) for one in self.explanations],
            "pulled": [
                {"lever": one.lever, "set": list(one.change.sets), "gain": one.gain, "flags": list(one.flags)}
                for one in self.pulled
            ],
            "first_lever": self.first and {"lever": self.first.lever, "set": list(self.first.change.sets), "gain": self.first.gain},
            "margin": self.margin,
            "machines": [self._plan(one, self.objectives) | {"machine": self.where(one)} for one in self.machines],
            "again": {"network": self.network, "plans": [{"plan": place, "step_time_s": s} for place, s in self.again]},
            "command": self.command,
        }

    def _error(self, place: int) -> float | None:
        return predict(self.job_of(self.ranked[place])).relative_error if place < MOST else None

    def _why(self, why: Explanation) -> dict[str, Any]:
        """The reasons for one objective; its plan is number `plan` of `plans`."""

        def plan(one: Candidate) -> dict[str, Any]:
            return self._plan(one, (why.objective,))

        relaxed, roomier, free, known = why.relaxed, why.roomier, why.unlimited, why.known
        return {
            "objective": why.objective.name,
            "plan": self.place(why.best),
            "decisions": [vars(one) for one in why.decisions],
            "memory_binds": relaxed and {"missing": relaxed.missing, "gain": relaxed.gain, "plan": plan(relaxed.candidate)},
            "keeps_memory_free": roomier and {"free": roomier.free, "loss": roomier.loss, "plan": plan(roomier.candidate)},
            "limits_bind": free
            and {
                "gain": free.gain,
                "needs": {most.objective.name: value for most, value in free.needs},
                "plan": plan(free.candidate),
            },
            "your_plan": known and {"loss": known.loss, "step_time_s": known.outcome.step_time_s},
        }

    def place(self, candidate: Candidate) -> int:
        """The place of a ranked plan, from 0."""
        return next(at for at, one in enumerate(self.ranked) if one.row == candidate.row and one.change == candidate.change)

    def _plan(self, one: Candidate, objectives: tuple[Objective, ...]) -> dict[str, Any]:
        job, outcome = self.jobs[one.frame], one.outcome
        return {
            "frame": self.labels[one.frame],
            "set": list(one.change.without_no_ops(job).sets),
            "plan": dict(self.fields(one)),
            "values": {each.name: each.shown(value) for each, value in zip(objectives, one.values, strict=True)},
            "step_time_s": outcome.step_time_s,
            "tokens_per_s": outcome.tokens_per_s,
            "mfu": outcome.mfu,
            "memory": outcome.memory,
            "cost_per_step": outcome.cost_per_step,
            "energy_j_per_step": outcome.energy_j_per_step,
            "breakdown": outcome.breakdown,
        }


MOST = 10
"""Plans that are predicted again at most, over another network or with their errors."""


def rerank(result: SearchResult, network: str, top: int = MOST) -> SearchResult:
    """The result with the step times of its first plans over `network`: flow or packet."""
    if network == "closed":
        return result
    count = min(top, MOST, len(result.ranked))
    steps = [(place, predict(result.job_of(result.ranked[place]), network).step_time_s) for place in range(count)]
    return replace(result, again=tuple(sorted(steps, key=lambda one: one[1])), network=network)
