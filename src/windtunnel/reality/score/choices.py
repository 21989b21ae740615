"""Whether predictions choose well: measured plans of one job, ordered by their predictions.

A group holds the rows of equal family, framework and release, model, machine, global batch, sequence and precision; its rows
differ in their plan.
*PlanChoice regret* is what the user of a prediction loses: the measured time of the plan that is predicted fastest over that of
the plan measured fastest, minus 1. A pair of plans counts where their measured times differ by more than `APART`; it agrees where
the predictions have the same order. Runs of one plan count as one plan, of their median time.

Runs that say nothing of their plan are set aside, by rules that see no prediction: those of which the publication says so (`aside`
in `catalog/publications/`), those that contradict a twin, a run of the same plan or of one that differs in ZeRO-1 alone, and those
that take far more GPU time than the same plan with more replicas: replicas add communication and idle time, never save any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.reality.jobs.software import software_date
from windtunnel.reality.rows import publications
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.reality.score.scores import Score

APART = 0.02
"""Share by which two measured times must differ to be ordered: single steps repeat within one or two percent."""

TWINS_APART = 1.5
"""Quotient of two times from which a run and its twin contradict each other: ZeRO-1 changes a step by less than that."""

REPLICATED = ("none", "zero1")
"""Shardings of twins: parameters whole on every rank, one reduction and at most one gather a step."""

JOB = (
    *("family", "framework", "model", "arch", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "topk"),
    *("gpu", "gpus", "gpus_per_node", "scaleup_gpus", "nics_per_node", "nic_gbit_s", "fabric", "gbs", "seq", "precision"),
)
"""Columns in which the rows of a group are equal."""

PLAN = (
    *("tp", "pp", "vpp", "dp", "cp", "ep", "mbs", "sharding", "shard_group", "seq_parallel", "recompute", "recompute_modules"),
    *("offload_layers", "overlap_tp", "overlap_dp", "overlap_pp", "features"),
)
"""Columns that tell plans of a group apart."""

REPLICAS = ("gpus", "dp", "sharding", "nics_per_node", "nic_gbit_s", "fabric")
"""Columns in which runs of one plan with other numbers of replicas may differ; one node has no network."""

Plan = tuple[Any, ...]


@dataclass(frozen=True)
class PlanTimes:
    """One plan of a group: its first row's id, and seconds measured (median of its runs) and predicted."""

    id: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class PlanChoice:
    """A group of at least two plans. `pairs` are those that measurement tells apart; `agreed` those in the predicted order."""

    family: str
    job: str
    plans: int
    best: str
    picked: str
    regret_pct: float
    pairs: int
    agreed: int

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class FamilyChoices:
    """The groups of a family: regrets in percent over groups, and the share of its pairs in the predicted order."""

    family: str
    groups: int
    plans: int
    mean_regret_pct: float
    median_regret_pct: float
    max_regret_pct: float
    pairs: int
    agreed_pct: float | None

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def choices(rows: Iterable[TrainingRow], scores: Iterable[Score]) -> tuple[PlanChoice, ...]:
    """The groups of `rows` whose step times are among `scores`, in the order of the rows; groups of one plan are left out."""
    rows = tuple(rows)
    aside = set_aside(rows)
    timed = {score.id: score for score in scores if score.quantity == "step_time_s" and score.error_pct is not None}
    groups_of_plans = []
    for group in by_plan(row for row in rows if row.id in timed and row.id not in aside):
        if len(group) > 1:
            plans = [_times(runs, timed) for runs in group.values()]
            groups_of_plans.append(_choice(next(iter(group.values()))[0], plans))
    return tuple(groups_of_plans)


def by_plan(rows: Iterable[TrainingRow]) -> Iterable[dict[Plan, list[TrainingRow]]]:
    """The groups of `rows`, each with its runs by plan."""
    groups: dict[Plan, dict[Plan, list[TrainingRow]]] = {}
    for row in rows:
        groups.setdefault((software_date(row), *_key(row, JOB)), {}).setdefault(_key(row, PLAN), []).append(row)
    return groups.values()


def set_aside(rows: Iterable[TrainingRow]) -> dict[str, str]:
    """Reason by id of the rows that are left out of choices."""
    rows = tuple(rows)
    reasons: dict[str, str] = {}
    twins: dict[Plan, list[tuple[float, str]]] = {}
    for row in rows:
        if reason := publications.aside(row):
            reasons[row.id] = reason
        elif row.iter_time_s and row.sharding in REPLICATED:
            key = (software_date(row), *_key(row, JOB), *_key(row, tuple(name for name in PLAN if name != "sharding")))
            twins.setdefault(key, []).append((row.iter_time_s, row.id))
    for runs in twins.values():
        if max(runs)[0] > TWINS_APART * min(runs)[0]:
            reasons |= dict.fromkeys((name for _, name in runs), f"runs of this plan differ by more than {TWINS_APART:g} times")
    return _wasteful(rows) | reasons


def _wasteful(rows: Iterable[TrainingRow]) -> dict[str, str]:
    """Reason by id of the runs that take more than `TWINS_APART` times the GPU time of the same plan with more replicas."""
    columns = tuple(name for name in (*JOB, *PLAN) if name not in REPLICAS)
    plans: dict[Plan, list[tuple[int, float, str]]] = {}
    for row in rows:
        if row.iter_time_s and row.gpus and row.dp and row.sharding in REPLICATED:
            run = (row.dp, row.iter_time_s * row.gpus, row.id)
            plans.setdefault((software_date(row), *_key(row, columns)), []).append(run)
    why = f"the same plan with more replicas takes less than 1/{TWINS_APART:g} of its GPU time"
    return {
        name: why
        for runs in plans.values()
        for dp, work, name in runs
        if any(other > dp and work > TWINS_APART * less for other, less, _ in runs)
    }


def by_family(listed: Sequence[PlanChoice]) -> tuple[FamilyChoices, ...]:
    """A line for each family, in the order of `listed`."""
    families: dict[str, list[PlanChoice]] = {}
    for choice in listed:
        families.setdefault(choice.family, []).append(choice)
    return tuple(_family(name, groups) for name, groups in families.items())


def _family(name: str, groups: Sequence[PlanChoice]) -> FamilyChoices:
    regrets, pairs = [group.regret_pct for group in groups], sum(group.pairs for group in groups)
    agreed = 100.0 * sum(group.agreed for group in groups) / pairs if pairs else None
    plans = sum(group.plans for group in groups)
    return FamilyChoices(name, len(groups), plans, fmean(regrets), median(regrets), max(regrets), pairs, agreed)


def _choice(row: TrainingRow, plans: Sequence[PlanTimes]) -> PlanChoice:
    best, picked = min(plans, key=lambda plan: plan.measured), min(plans, key=lambda plan: plan.predicted)
    told = [(a, b) for a, b in combinations(plans, 2) if abs(a.measured - b.measured) > APART * min(a.measured, b.measured)]
    agreed = sum((a.measured - b.measured) * (a.predicted - b.predicted) > 0.0 for a, b in told)
    regret = 100.0 * (picked.measured / best.measured - 1.0)
    job = f"{row.model or '?'} on {row.gpus} {row.gpu}, gbs {row.gbs}, seq {row.seq}"
    return PlanChoice(row.family, job, len(plans), best.id, picked.id, regret, len(told), agreed)


def _times(runs: Sequence[TrainingRow], timed: dict[str, Score]) -> PlanTimes:
    """All runs of a plan have one prediction."""
    scores = [timed[run.id] for run in runs]
    return PlanTimes(runs[0].id, median(score.measured or 0.0 for score in scores), scores[0].predicted or 0.0)


def _key(row: TrainingRow, columns: Sequence[str]) -> Plan:
    return tuple(getattr(row, column) for column in columns)
