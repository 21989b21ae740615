"""The plan of a candidate machine and model: the best of a small space around the first one that fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction
from windtunnel.search.api import search
from windtunnel.search.defaults import default_fields
from windtunnel.search.find import SearchLimits
from windtunnel.search.margin import usual_margin
from windtunnel.search.space import Values
from windtunnel.search.start import start
from windtunnel.spec import Job, Model
from windtunnel.spec.loading.degrees import stated_in
from windtunnel.spec.loading.load import override
from windtunnel.spec.loading.resolve import merge

GAP = 0.02
"""Share by which another plan of the space may be better: a planner compares machines, whose rates differ by more."""

NARROWER: dict[str, Values] = {
    "plan.pp": (1, 2, 4, 8, 16),
    "plan.vpp": (1, 2, 4),
    "plan.sharding": ("zero1", "fsdp"),
    "plan.micro_batch": (1, 2),
    "plan.recompute": ("none", "full"),
    "plan.cp": (1,),
}
"""Values of the default space that are kept, so that many candidates take seconds."""


def best_plan(model: Model, cluster: str | dict[str, Any], overrides: Sequence[str] = ()) -> Prediction:
    """The prediction of a good plan for a model on a cluster, whose `cluster.gpus` and other fields the overrides may state.

    If no plan of the space fits, that of the first plan that was tried. Raises the PlanError or SpecError of the first candidate
    if no plan is a valid job.
    """
    job, fixed = _first_job(model, cluster, overrides)
    fields = {path: values for path, values in default_fields(job).items() if path not in fixed}
    for path, kept in NARROWER.items():
        if path in fields:
            fields[path] = tuple(value for value in fields[path] if value in kept) or fields[path]
    return _best_of(job, fields, GAP)


def thorough_plan(model: Model, cluster: str | dict[str, Any], overrides: Sequence[str] = ()) -> Prediction:
    """As `best_plan`, but the best plan of the whole default space, which takes seconds."""
    job, fixed = _first_job(model, cluster, overrides)
    return _best_of(job, {path: values for path, values in default_fields(job).items() if path not in fixed}, 0.0)


def _first_job(model: Model, cluster: str | dict[str, Any], overrides: Sequence[str]) -> tuple[Job, frozenset[str]]:
    """The job of the first plan, and the paths that the overrides state."""
    stated: dict[str, Any] = {}
    for text in overrides:
        stated = merge(stated, override(text))
    table = {
        "name": model.name,
        "model": model.model_dump(mode="json", exclude_none=True),
        "runtime": {"framework": "megatron-core"},
        "cluster": cluster,
    }
    fixed = stated_in(stated)
    return start(table, model, overrides, fixed).job, fixed


def _best_of(job: Job, fields: dict[str, Values], gap: float) -> Prediction:
    try:
        result = search(
            job, fields, margin=usual_margin(), limits=SearchLimits(gap=gap), processes=1, explained=False, levers=False
        )
    except (PlanError, SpecError):
        return predict(job)
    return predict(result.job_of(result.ranked[0]))
