"""Many jobs to choose from: the best plans, hardware from ranges, and plans from a budget, a deadline or a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.search.budget.planner import Planned
    from windtunnel.search.design import DesignResult
    from windtunnel.search.find import SearchLimits
    from windtunnel.search.result import SearchResult
    from windtunnel.spec import Job, Model
    from windtunnel.spec.scaling import LossLaw


def search(
    job: Job | Sequence[Job],
    space: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = None,
    objective: str | Sequence[str] = "time",
    *,
    at_most: Mapping[str, float] | None = None,
    margin: float | None = None,
    limits: SearchLimits | None = None,
    processes: int | None = None,
    ray: str | None = None,
    out: str | Path | None = None,
    stop: Callable[[float], bool] | None = None,
    explained: bool = True,
    labels: Sequence[str] = (),
    top: int = 10,
) -> SearchResult:
    """The best plans of a job, or of several that compete, such as one on each of some machines; with a proof that none is better.

    `space`: open fields by path with the values to try, such as {"plan.tp": (4, 8)}; for several jobs one for all or one for each;
    left out: all fields of the plan. `objective`: time, tokens, dollars, …; several give a Pareto front. `at_most`: limits of
    objectives: days, bill (US dollars of the run). `margin`: share of GPU memory to keep free; left out: what predictions of
    memory err by at one sigma. `limits`: SearchLimits(gap,
    seconds): stop when no plan can be better by more than the share `gap`, or after so many seconds of predictions. `processes`
    that predict: one for each core where left out; `ray`: the address of a Ray cluster, or "auto". `out`: a .parquet file that
    keeps predicted plans, and from which a search continues. `stop` gets the finished share, and ends the search where it returns
    true. `explained`: look for the reasons. `labels`: names of the jobs in reports. `top`: how
    many of the best plans to find.

    Raises SpecError for a field that cannot be open or if no combination is a plan, PlanError if no plan fits or keeps the limits.
    """
    from windtunnel.search.api import search as run
    from windtunnel.search.find import NO_LIMITS
    from windtunnel.search.margin import usual_margin

    return run(
        job,
        space,
        objective,
        at_most=at_most,
        margin=usual_margin() if margin is None else margin,
        limits=limits or NO_LIMITS,
        processes=processes,
        ray=ray,
        out=None if out is None else str(out),
        stop=stop,
        explained=explained,
        labels=labels,
        top=top,
    )


def plan(
    *,
    budget: float | None = None,
    days: float | None = None,
    loss: float | None = None,
    on: Sequence[str] = (),
    gpus: Sequence[int] = (),
    model: str | Path | Model | None = None,
    parameters: float | None = None,
    tokens: float | None = None,
    tokens_per_parameter: float | None = None,
    law: str | Path | LossLaw = "epoch",
    goodput: float = 1.0,
    overrides: Sequence[str] = (),
    progress: Callable[[float], object] | None = None,
) -> Planned:
    """The inverse question: from a `budget` (US dollars), a deadline (`days`) or a `loss` (nats a token) to model, tokens and
    machine.

    `on`: names of clusters to try, `gpus`: numbers of GPUs of each; left out: some of the catalogue, and numbers that suit the
    targets. `model`, or `parameters` and a decoder of about that size; `tokens` or `tokens_per_parameter` in place of the best
    split. `law`: of the loss, by name (epoch, hoffmann), file or as read. `goodput`: share of the days that trains. `overrides`:
    fields of the jobs that are predicted. The result's `alternatives` are the answers, the best first. Raises SpecError for targets
    that contradict each other, PlanError if nothing meets them.
    """
    from windtunnel.base.errors import SpecError
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.search.budget.planner import MACHINES
    from windtunnel.search.budget.planner import plan as run
    from windtunnel.search.budget.wish import Wish
    from windtunnel.spec import Model, load_law, load_model
    from windtunnel.workload import parameter_count

    if model is not None and parameters is not None:
        raise SpecError("--parameters", parameters, "left out with --model, which has its own")
    chosen = None
    if model is not None:
        found = model if isinstance(model, Model) else load_model_apart(str(model))
        changes = [text.removeprefix("model.") for text in overrides if text.startswith("model.")]
        chosen = load_model(found.model_dump(mode="json", exclude_none=True), changes)
    known = load_law(law) if isinstance(law, (str, Path)) else law
    size = parameter_count(chosen) if chosen is not None else parameters
    wish = Wish(known, budget, days, loss, chosen, size, tokens, tokens_per_parameter, goodput)
    return run(wish, tuple(on) or MACHINES, tuple(gpus), list(overrides), progress)


def design(
    job: Job,
    fields: Mapping[str, str | Sequence[Any]],
    objective: str | Sequence[str] = "time",
    *,
    trials: int = 100,
    seed: int = 0,
    study: str | None = None,
    premiums: Mapping[str, float] | None = None,
    fixed_plan: bool = False,
    predictions: int | None = None,
    stop: Callable[[float], bool] | None = None,
) -> DesignResult:
    """Hardware from ranges: `trials` sampled designs of the job's machine, each with its best plan; needs the extra `search`.

    `fields`: by path, a range such as "2TB/s..8TB/s" or values to choose from, such as (8, 16) or "8,16"; fields of the plan with
    several values are open to the plan search of each design. `objective` as in `search`. `study`: keep the trials, and continue
    from them: "sqlite:///design.db". `premiums`: US dollars a GPU and hour for each unit of a range above the job's own value.
    `fixed_plan`: keep the job's plan; else `predictions` for the plan of each design. `seed` is the sampler's. `stop` gets the
    finished share, and ends the study where it returns true. Raises SpecError for a field that cannot vary.
    """
    import tomllib

    from windtunnel.jobs.design_fields import DesignFields, premium_of
    from windtunnel.search.change import format_value
    from windtunnel.search.design import PREDICTIONS
    from windtunnel.search.design import design as run
    from windtunnel.spec import dump_job, load_job

    written = [(k, v if isinstance(v, str) else ",".join(format_value(one) for one in v)) for k, v in fields.items()]
    parts = DesignFields.of(written)
    base = load_job(tomllib.loads(dump_job(job)), parts.fixed) if parts.fixed else job
    axes = parts.axes(base)
    return run(
        parts.space_of(base),
        axes,
        objective if isinstance(objective, str) else ",".join(objective),
        trials=trials,
        seed=seed,
        study=study,
        premiums=[premium_of(path, dollars, axes) for path, dollars in (premiums or {}).items()],
        fixed_plan=fixed_plan,
        predictions=PREDICTIONS if predictions is None else predictions,
        stop=stop,
    )
