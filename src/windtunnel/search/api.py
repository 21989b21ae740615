"""The search in one call."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.search.explain import explain
from windtunnel.search.find import Candidate, Plans, Search, SearchLimits, plans_of
from windtunnel.search.front import front_first
from windtunnel.search.objective import Most, Objective, amount, objectives
from windtunnel.search.result import SearchResult
from windtunnel.search.space import Space
from windtunnel.search.store import Store
from windtunnel.search.workers import workers_of
from windtunnel.spec import Job
from windtunnel.spec.loading.catalog import names


def search(
    spaces: Sequence[Space],
    objective: str = "time",
    *,
    labels: Sequence[str] | None = None,
    most: Mapping[str, float] | None = None,
    margin: float = 0.0,
    gap: float = 0.0,
    seconds: float | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    out: str | None = None,
    stop: Callable[[float], bool] | None = None,
    explained: bool = True,
    command: Sequence[Sequence[str]] = (),
    own: str = "Your plan",
) -> SearchResult:
    """The best plans of `spaces`, one for each frame, with a certificate.

    `objective`: names of `objective.OBJECTIVES`, separated by commas; several give a Pareto front. `most`: limits by
    objective, such as days = 30. `margin`: share of GPU memory to keep free. The search ends when no plan can be better than
    the best by more than the share `gap`, after `seconds` of predictions, or when `stop`, which gets the finished share,
    returns true. `jobs`: worker processes; `ray`: a Ray cluster's address instead, or "auto". `out`: a Parquet file that
    keeps predicted plans. `own`: what reports call the frames' own plans; `command`: for each frame, words that name its job
    in a command line. Raises SpecError if no combination is a plan or the margin is too large for all, PlanError if no plan
    fits or keeps the limits.
    """
    _check_shares(margin, gap, seconds)
    chosen = objectives(objective)
    constraints = [Most(objectives(name)[0], limit) for name, limit in (most or {}).items()]
    for space in spaces:
        _check_job(space.job, chosen, constraints)
    plans = plans_of(spaces, chosen, margin, None if stop is None else lambda share: stop(0.3 * share), constraints)
    if not len(plans):
        raise SpecError("--set", f"{plans.refused:,} plans", "at least one that does not contradict itself", _most_refused(plans))
    _check_limits(plans)
    store = None if out is None else Store(out, plans.jobs, margin)
    workers = workers_of(plans.jobs, margin, jobs, ray)
    stopped = False

    def ended(share: float) -> bool:
        nonlocal stopped
        stopped = stopped or stop is not None and stop(0.3 + 0.6 * share)
        return stopped

    try:
        found = Search(plans, chosen, workers, store)
        ranked, left = found.run(limits=SearchLimits(gap, math.inf if seconds is None else seconds), stop=ended)
        if not ranked:
            raise _nothing(plans, found, stopped, seconds, margin)
        certificate = found.certificate(left, ranked[0])
        explanations = explain(found, ranked, lambda: ended(0.7), margin) if explained and not stopped else ()
    finally:
        workers.close()
        if store is not None:
            store.write()
    shown = tuple(labels) if labels is not None else ("",) * len(plans.jobs)
    again = _command(plans, ranked[0], command)
    return SearchResult(plans.jobs, shown, chosen, tuple(ranked), _front(ranked, chosen), certificate, explanations, again, own)


CHANCE = ("jitter", "documents", "batches", "spread")
"""Sources of unequal ranks for which there is no bound: they may make a rank faster than the cluster says."""


LIMITS = {"days": "--deadline", "bill": "--budget"}
"""Options that limit an objective."""


def _check_shares(margin: float, gap: float, seconds: float | None) -> None:
    """SpecError for a share outside of 0 to 1, and for a time that is no number."""
    for option, share in (("--margin", margin), ("--gap", gap)):
        if not 0.0 <= share < 1.0:
            raise SpecError(option, share, "a share from 0 to below 1, such as 0.05")
    if seconds is not None and not seconds >= 0.0:
        raise SpecError("--limit", seconds, "seconds from 0 on, such as 30")


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


def _command(plans: Plans, best: Candidate, command: Sequence[Sequence[str]]) -> str:
    """The command line that predicts a plan."""
    named = command[best.frame] if command else ()
    return shlex.join(["windtunnel", "predict", *_merged(named, _settings(plans, best))])


def _merged(named: Sequence[str], settings: Sequence[str]) -> list[str]:
    """Words of both without a `--set` of `named` that `settings` repeats."""
    ours = {text.partition("=")[0] for text in settings}
    words = list(named)
    for place in reversed(range(len(words) - 1)):
        if words[place] == "--set" and words[place + 1].partition("=")[0] in ours:
            del words[place : place + 2]
    return [*words, *settings]


def _check_limits(plans: Plans) -> None:
    """PlanError if a constraint leaves no plan: which one, and by how much the nearest plan misses it."""
    if plans.over and not plans.may_fit.any():
        raise _over_limit(plans, plans.nearest)


def _over_limit(plans: Plans, nearest: Sequence[float]) -> PlanError:
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


def _settings(plans: Plans, best: Candidate) -> list[str]:
    """Options that turn the job of the command line into the best plan's."""
    job = plans.jobs[best.frame]
    words = []
    if job.cluster.id in names("clusters"):
        words += ["--on", job.cluster.id]
    sets = [f"cluster.gpus={job.cluster.gpus}", f"plan.global_batch={job.plan.global_batch}", f"plan.seq={job.plan.seq}"]
    sets += [text for text in best.change.sets if not text.endswith("=none") or "recompute" in text or "sharding" in text]
    return words + [word for text in dict.fromkeys(sets) for word in ("--set", text)]


def _front(ranked: Sequence[Candidate], chosen: Sequence[Objective]) -> int:
    """Candidates that no other beats in every objective; they stand first."""
    return 1 if len(chosen) == 1 else front_first(ranked, lambda one: one.values)[1]


def _most_refused(plans: Plans) -> str:
    if not plans.reasons:
        return ""
    field = max(plans.reasons, key=lambda where: plans.reasons[where])
    return f"Most of them contradict {field}."


def _nothing(plans: Plans, found: Search, stopped: bool, seconds: float | None, margin: float) -> SpecError:
    """Why no plan was found."""
    if stopped or seconds is not None:
        return SpecError("--limit", seconds, "time enough for one plan that fits", f"{len(found.known)} were tried.")
    return _over_limit(plans, found.over) if found.over else _too_large(plans, found, margin)


SMALL = 24
"""Plans, those with the least bounds of memory first, among which the smallest is looked for."""


def _too_large(plans: Plans, found: Search, margin: float) -> SpecError:
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
