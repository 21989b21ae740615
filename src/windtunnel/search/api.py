"""A search for the best plans in one call.

Levers in a search: switches that are set on beforehand, and the best plan with every lever that still helps it.

A space with all switches open would be thousands of times as large. Those of the runtime rarely cost time, so they are set where
they help the job's own plan; at the winner every lever of the list is tried again, until none helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import PlanError, SpecError, WindtunnelError
from windtunnel.search.change import Change, facts_of, predict_or_none, remember_facts
from windtunnel.search.defaults import default_fields
from windtunnel.search.find import NO_LIMITS, Candidate, Plans, Search, SearchLimits, plans_of
from windtunnel.search.levers.pricing import PricedLever, first_lever_or_none, price_levers
from windtunnel.search.objective import Most, Objective, amount, front_first, objectives, values_of
from windtunnel.search.outcome import Store, outcome_of
from windtunnel.search.result import SearchResult, explain
from windtunnel.search.space import SWITCHES, Space, Values, check_path, may_be_open
from windtunnel.search.workers import workers_of
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


Fields = Mapping[str, Sequence[Any]]
"""Open fields by path, with the values to try."""


@remember_facts()
def search(  # long: one parameter a line, and their docstring
    job: Job | Sequence[Job],
    space: Fields | Sequence[Fields] | None = None,
    objective: str | Sequence[str] = "time",
    *,
    at_most: Mapping[str, float] | None = None,
    margin: float = 0.0,
    limits: SearchLimits = NO_LIMITS,
    processes: int | None = None,
    ray: str | None = None,
    out: str | None = None,
    stop: Callable[[float], bool] | None = None,
    explained: bool = True,
    labels: Sequence[str] = (),
    levers: bool | None = None,
    fixed: AbstractSet[str] = frozenset(),
    top: int = 1,
) -> SearchResult:
    """The best plans of a job, or of several that compete, such as one on each of some machines; with a certificate.

    `space`: open fields by path with the values to try, such as `{"plan.tp": (4, 8)}`; for several jobs one for all or one for
    each; by default `defaults.default_fields`. Fields that are not open stay as the job has them.
    `objective`: names of `objective.OBJECTIVES`; several give a Pareto front. `at_most`: limits of objectives by name, such as
    days = 30. `margin`: share of GPU memory to keep free. `limits`: when the search ends before no plan can be better; `stop` gets
    the share that is done, and ends the search where it returns true. `processes` that predict, by default one for each core;
    `ray`: a Ray cluster's address instead, or "auto". `out`: a Parquet file that keeps predicted plans. `explained`: whether to
    look for reasons. `labels`: words by which reports name the jobs. `levers`: whether to set switches of the runtime beforehand
    that help, and to try every lever of `levers.registry` at the best plan (default: where no space is given); those of `fixed`
    paths stay. `top`: how many of the best plans to find, as far as MOST_FOR_TOP further predictions go.
    Raises SpecError if no combination is a plan or the margin is
    too large for all, PlanError if no plan fits or keeps the limits.
    """
    _check_shares(margin, limits)
    chosen = objectives(objective if isinstance(objective, str) else ",".join(objective))
    constraints = [Most(objectives(name)[0], limit) for name, limit in (at_most or {}).items()]
    spaces = _spaces_of(job, space)
    pulls = (space is None if levers is None else levers) and len(chosen) == 1
    if pulls:
        spaces = [Space(one.job, {**one.fields, **_beforehand(one, fixed)}) for one in spaces]
    for each in spaces:
        _check_job(each.job, chosen, constraints)
    plans = plans_of(spaces, chosen, margin, None if stop is None else _until_asked(stop), constraints)
    if not len(plans):
        raise SpecError("--set", f"{plans.refused:,} plans", "at least one that does not contradict itself", _most_refused(plans))
    _check_limits(plans)
    store = None if out is None else Store(out, plans.jobs, margin)
    workers = workers_of(plans.jobs, margin, processes, ray)
    stopped = False

    def has_ended(share: float) -> bool:
        nonlocal stopped
        stopped = stopped or stop is not None and stop(0.3 + 0.6 * share)
        return stopped

    try:
        found = Search(plans, chosen, workers, store)
        ranked, left = found.run(limits=limits, stop=has_ended)
        if not ranked:
            raise _no_plan_error(plans, found, stopped, limits.seconds, margin)
        certificate = found.certificate(left, ranked[0])
        further = _Further()
        if len(chosen) == 1 and not stopped:
            further = _look_further(found, ranked, limits, top, has_ended)
            ranked = further.ranked
        if pulls and not stopped:
            further.best, further.pulled = pull_levers(
                plans.jobs[ranked[0].frame], ranked[0], chosen[0], constraints, margin, fixed
            )
            further.first = first_lever_or_none(plans.jobs[ranked[0].frame]) if explained else None
        explanations = explain(found, ranked, lambda: has_ended(0.7), margin) if explained and not stopped else ()
    finally:
        workers.close()
        if store is not None:
            store.write()
    names = tuple(labels) or ("",) * len(plans.jobs)
    if further.best is not None and further.pulled:
        ranked = [further.best, *ranked]
    return SearchResult(
        plans.jobs, names, chosen, tuple(ranked), _front(ranked, chosen), certificate, explanations,
        pulled=further.pulled, margin=margin, machines=further.machines, first=further.first,
    )  # fmt: skip


@dataclass
class _Further:
    """What a search finds beyond its proof: the best of each machine, as many plans as asked for, levers at the best plan."""

    ranked: list[Candidate] = field(default_factory=list)
    machines: tuple[Candidate, ...] = ()
    best: Candidate | None = None
    pulled: tuple[PricedLever, ...] = ()
    first: PricedLever | None = None


def _look_further(
    found: Search, ranked: list[Candidate], limits: SearchLimits, top: int, stop: Callable[[float], bool]
) -> _Further:
    """The best plan of each machine, and the `top` best of all."""
    machines = _best_of_machines(found, ranked)
    if len(ranked) < top:
        some = SearchLimits(seconds=limits.seconds, predictions=MOST_FOR_TOP * top)
        ranked, _ = found.run(limits=some, stop=stop, keep=top)
    return _Further(ranked, machines)


MOST_FOR_TOP = 6
"""Predictions for each plan of `top` that the proof of the first one has not needed."""

FOR_MACHINE = 12
"""Predictions for the best plan of a machine that the winner is not on."""


def _best_of_machines(found: Search, ranked: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The best plan found on each cluster, the best first; none for a single cluster."""
    plans = found.plans
    names = [job.cluster.id for job in plans.jobs]
    best = []
    for name in dict.fromkeys(names) if len(set(names)) > 1 else ():
        own = next((one for one in ranked if names[one.frame] == name), None)
        if own is None:
            frames = [number for number, other in enumerate(names) if other == name]
            rows = np.flatnonzero(plans.may_fit & np.isin(plans.frame, frames))
            some, _ = found.run(rows, SearchLimits(predictions=FOR_MACHINE))
            own = some[0] if some else None
        best += [own] if own is not None else []
    return tuple(sorted(best, key=lambda one: one.values))


def _beforehand(space: Space, fixed: AbstractSet[str]) -> dict[str, tuple[Any, ...]]:
    """Switches that are set on in all plans of a space, none of which it opens."""
    return {path: values for path, values in set_beforehand(space.job, fixed | space.fields.keys()).items()}


def _spaces_of(job: Job | Sequence[Job], space: Fields | Sequence[Fields] | None) -> list[Space]:
    """The space of each job. Raises SpecError for a field that cannot be open, UnknownName for one that does not exist."""
    jobs = [job] if isinstance(job, Job) else list(job)
    each = [default_fields(one) for one in jobs] if space is None else [space] * len(jobs) if isinstance(space, Mapping) else space
    for path in dict.fromkeys(path for fields in each for path in fields):
        check_path(path)
        if not may_be_open(path):
            allowed = f"a field of the plan but plan.seq, or one of {', '.join(SWITCHES)}"
            raise SpecError("space", path, allowed, "For other fields, give several jobs.")
    return [Space(one, {path: tuple(values) for path, values in fields.items()}) for one, fields in zip(jobs, each, strict=True)]


CHANCE = ("jitter", "documents", "batches", "spread")
"""Sources of unequal ranks for which there is no bound: they may make a rank faster than the cluster says."""


LIMITS = {"days": "--deadline", "bill": "--budget"}
"""Options that limit an objective."""


def _check_shares(margin: float, limits: SearchLimits) -> None:
    """SpecError for a share outside of 0 to 1, and for a time that is no number."""
    for option, share in (("--margin", margin), ("--gap", limits.gap)):
        if not 0.0 <= share < 1.0:
            raise SpecError(option, share, "a share from 0 to below 1, such as 0.05")
    if not limits.seconds >= 0.0:
        raise SpecError("--limit", limits.seconds, "seconds from 0 on, such as 30")


def _check_job(job: Job, chosen: Sequence[Objective], constraints: Sequence[Most]) -> None:
    """SpecError for a job that lacks an input of an objective or of a limit, or whose ranks differ by chance."""
    for each in chosen:
        if why := each.needs(job):
            raise SpecError("--objective", each.name, "an objective whose inputs the job states", why)
    for most in constraints:
        if why := most.objective.needs(job):
            raise SpecError(LIMITS[most.objective.name], most.limit, "a limit whose inputs the job states", why)
    for name in CHANCE if job.unequal is not None else ():
        if getattr(job.unequal, name):
            raise SpecError(
                f"unequal.{name}", "stated", "nothing: a search has no bound for it", f"Leave it out: --set unequal.{name}=none."
            )


def _check_limits(plans: Plans) -> None:
    """PlanError if a constraint leaves no plan: which one, and by how much the nearest plan misses it."""
    if plans.over and not plans.may_fit.any():
        raise _limit_error(plans, plans.nearest)


def _limit_error(plans: Plans, nearest: Sequence[float]) -> PlanError:
    """The constraint that the nearest plans miss; the first, if they miss each alone."""
    most, least = next(
        (pair for pair in zip(plans.constraints, nearest, strict=True) if pair[1] > pair[0].limit), (plans.constraints[0], 0.0)
    )
    of = most.objective
    return PlanError(
        LIMITS[of.name],
        most.limit,
        f"at least {amount(least)} {of.unit}: no plan that fits needs less"
        if least
        else "limits that one plan keeps at the same time",
        "Allow more, or give more or other machines: --gpus, --on.",
    )


def _front(ranked: Sequence[Candidate], chosen: Sequence[Objective]) -> int:
    """Candidates that no other beats in every objective; they stand first."""
    return 1 if len(chosen) == 1 else front_first(ranked, lambda one: one.values)[1]


def _most_refused(plans: Plans) -> str:
    if not plans.reasons:
        return ""
    field = max(plans.reasons, key=lambda where: plans.reasons[where])
    return f"Most of them contradict {field}."


def _until_asked(stop: Callable[[float], bool]) -> Callable[[float], None]:
    """Reports the share of bounds that are known. Before they are, nothing of a search can be kept: it ends where `stop` says."""

    def report(share: float) -> None:
        if stop(0.3 * share):
            raise SpecError("--limit", None, "time enough for one plan that fits", "0 were tried.")

    return report


def _no_plan_error(plans: Plans, found: Search, stopped: bool, seconds: float, margin: float) -> SpecError:
    """Why no plan was found."""
    if stopped or seconds < math.inf:
        limit = seconds if seconds < math.inf else None
        return SpecError("--limit", limit, "time enough for one plan that fits", f"{len(found.known)} were tried.")
    return _limit_error(plans, found.over) if found.over else _memory_error(plans, found, margin)


SMALL = 24
"""Plans, those with the least bounds of memory first, among which the smallest is looked for."""


def _memory_error(plans: Plans, found: Search, margin: float) -> SpecError:
    """No plan fits: by how much the smallest does not, and what it is; by the margin, if it would fit without."""
    beyond = plans.bytes - plans.room[plans.frame]
    missing = {number: outcome.missing for number, outcome in found.known.items() if outcome.missing > 0.0}
    for number in beyond.argsort()[:SMALL].tolist():
        if beyond[number] >= min(missing.values(), default=math.inf):
            break
        found.run(np.array([number]))
        if found.known[number].missing > 0.0:  # else the plan contradicts itself
            missing[number] = found.known[number].missing
    bounded = (int(beyond.argmin()), max(0.0, float(beyond.min())))
    number, lacks = min(missing.items(), key=lambda one: one[1], default=bounded)
    frame = int(plans.frame[number])
    words = " ".join(text for text in plans.change(number).sets if not text.endswith(("=none", "=auto")))
    smallest = f"lacks {lacks / 2**30:.1f} GiB on its fullest GPU" + (f" ({words})" if words else "")
    room = float(plans.room[frame])
    kept = 1.0 - (1.0 - margin) * (room + lacks) / room if room > 0.0 else 0.0  # share of the memory that the smallest leaves
    if kept >= 0.01:
        return SpecError("--margin", margin, f"less, such as {math.floor(100.0 * kept) / 100.0}", f"The smallest plan {smallest}.")
    others = "".join(f"--set {text}, " for text in ("plan.recompute=full", "plan.sharding=fsdp") if text not in words)
    return PlanError(
        "cluster.gpus",
        plans.jobs[frame].cluster.gpus,
        f"GPUs on which one of the {len(plans):,} plans fits; the smallest {smallest}",
        f"Try more GPUs, {others}or offload: `windtunnel memory JOB` prices them.",
    )
