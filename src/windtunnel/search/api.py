"""The search in one call."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.search.explain import explain
from windtunnel.search.find import Candidate, Limits, Plans, Search, plans_of
from windtunnel.search.objective import Most, Objective, objectives
from windtunnel.search.result import SearchResult
from windtunnel.search.space import Space
from windtunnel.search.store import Store
from windtunnel.search.workers import workers_of
from windtunnel.spec import Job
from windtunnel.spec.catalog import names


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
    brought: bool = True,
) -> SearchResult:
    """The best plans of `spaces`, one for each frame, with a certificate.

    `objective`: names of `objective.OBJECTIVES`, separated by commas; several give a Pareto front. `most`: limits by objective,
    such as days = 30. `margin`: share of GPU memory
    to keep
    free. The search ends when no plan can be better than the best by more than the share `gap`, after `seconds` of predictions,
    or when
    `stop`, which gets the finished share, returns true. `jobs`: worker processes; `ray`: a Ray cluster's address instead, or
    "auto".
    `out`: a Parquet file that keeps predicted plans. `brought`: the frames' own plans are the user's, not first plans that were
    made for
    them; `command`: for each frame, words that name its job in a command line. Raises SpecError if no combination is a plan,
    PlanError if no plan fits.
    """
    chosen = objectives(objective)
    constraints = [Most(objectives(name)[0], limit) for name, limit in (most or {}).items()]
    for space in spaces:
        for each in (*chosen, *(limit.objective for limit in constraints)):
            if why := each.needs(space.job):
                raise SpecError("--objective", each.name, "an objective of which the job states all inputs", why)
        _check_ranks(space.job)
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
        ranked, left = found.run(limits=Limits(gap, math.inf if seconds is None else seconds), stop=ended)
        certificate = found.certificate(left, ranked[0] if ranked else None)
        if not ranked:
            if stopped or seconds is not None:
                raise SpecError("--limit", seconds, "time enough for one plan that fits", f"{certificate.predicted} were tried.")
            raise _too_large(plans, found)
        explanation = None
        if explained and len(chosen) == 1 and not stopped:
            explanation = explain(found, ranked[0], lambda: ended(0.7))
    finally:
        workers.close()
        if store is not None:
            store.write()
    front = _front(ranked, chosen)
    named = command[ranked[0].frame] if command else ()
    again = ["windtunnel", "predict", *_merged(named, _settings(plans, ranked[0]))]
    shown = tuple(labels) if labels is not None else ("",) * len(plans.jobs)
    return SearchResult(plans.jobs, shown, chosen, tuple(ranked), front, certificate, explanation, shlex.join(again), brought)


CHANCE = ("jitter", "documents", "batches", "spread")
"""Sources of unequal ranks for which there is no bound: they may make a rank faster than the cluster says."""


def _check_ranks(job: Job) -> None:
    """SpecError for a job whose ranks differ by chance."""
    for name in CHANCE if job.unequal is not None else ():
        if getattr(job.unequal, name):
            raise SpecError(
                f"unequal.{name}", "stated", "nothing: a search has no bound for it", f"Leave it out: --set unequal.{name}=none."
            )


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
    if plans.may_fit.any() or not plans.over:
        return
    for most, nearest in zip(plans.constraints, plans.nearest, strict=True):
        if nearest > most.limit:
            of = most.objective
            raise PlanError(
                f"--{'deadline' if of.name == 'days' else 'budget'}",
                most.limit,
                f"at least {nearest:,.4g} {of.unit}: no plan that fits needs less",
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
    if len(chosen) == 1:
        return min(1, len(ranked))
    return sum(not any(_beats(other, one) for other in ranked) for one in ranked)


def _beats(one: Candidate, other: Candidate) -> bool:
    return all(a <= b for a, b in zip(one.values, other.values, strict=True)) and one.values != other.values


def _most_refused(plans: Plans) -> str:
    if not plans.reasons:
        return ""
    field = max(plans.reasons, key=lambda where: plans.reasons[where])
    return f"Most of them contradict {field}."


def _too_large(plans: Plans, found: Search) -> PlanError:
    """No plan fits: by how much the smallest does not, and what it is."""
    tried = {number: outcome for number, outcome in found.known.items() if outcome.missing > 0.0}
    if tried:
        number = min(tried, key=lambda n: tried[n].missing)
        missing = tried[number].missing
    else:
        number = int(plans.bytes.argmin())
        missing = float(plans.bytes[number]) - plans.jobs[int(plans.frame[number])].cluster.gpu.memory
    job = plans.jobs[int(plans.frame[number])]
    lacks = max(missing, 0.0) / 2**30
    smallest = " ".join(plans.change(number).without_no_ops(job).sets)
    return PlanError(
        "cluster.gpus",
        job.cluster.gpus,
        f"room for one of the {len(plans):,} plans; the smallest lacks {lacks:.1f} GiB on its fullest GPU ({smallest})",
        "Try more GPUs, --set plan.recompute=full, --set plan.sharding=fsdp, or offload: `windtunnel memory JOB` prices them.",
    )
