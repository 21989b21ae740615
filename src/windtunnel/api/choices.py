"""Many jobs to choose from: the best plans, hardware from ranges, and plans from a budget, a deadline or a loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.options import asks
from windtunnel.search.options import DesignOptions, PlanOptions, SearchOptions

if TYPE_CHECKING:
    from windtunnel.search.budget.planner import Planned
    from windtunnel.search.design import DesignResult
    from windtunnel.search.result import SearchResult


@asks(SearchOptions)
def search(asked: SearchOptions) -> SearchResult:
    """The best plans of a job, or of several that compete, such as one on each of some machines; with a proof that none is better.

    `space`: such as {"plan.tp": (4, 8)}; for several jobs one for all or one for each. `objective`: time, tokens, dollars, …
    `margin`: left out: what predictions of memory err by at one sigma. `limits`: SearchLimits(gap, seconds): stop when no plan can
    be better by more than the share `gap`, or after so many seconds of predictions. `top`: how many of the best plans to find.

    Raises SpecError for a field that cannot be open or if no combination is a plan, PlanError if no plan fits or keeps the limits.
    """
    from windtunnel.search.api import search as run
    from windtunnel.search.find import NO_LIMITS
    from windtunnel.search.margin import usual_margin

    return run(
        asked.job,
        asked.space,
        asked.objective,
        at_most=asked.at_most,
        margin=usual_margin() if asked.margin is None else asked.margin,
        limits=asked.limits or NO_LIMITS,
        processes=asked.processes,
        ray=asked.ray,
        out=None if asked.out is None else str(asked.out),
        stop=asked.stop,
        explained=asked.explained,
        labels=asked.labels,
        top=asked.top,
    )


def plan_of(asked: PlanOptions) -> Planned:
    """The inverse question: from a `budget` (US dollars), a deadline (`days`) or a `loss` (nats a token) to model, tokens and
    machine.

    `on`, `gpus` left out: some of the catalogue, and numbers that suit the targets. `law`: by name, file or as read. `overrides`:
    fields of the jobs that are predicted, and of the law (law.E=1.7). The result's `alternatives` are the answers, the best first.
    Raises SpecError for targets that contradict each other, PlanError if nothing meets them.
    """
    from windtunnel.base.errors import SpecError
    from windtunnel.jobs.imports import load_model_apart
    from windtunnel.search.budget.planner import MACHINES
    from windtunnel.search.budget.planner import plan as run
    from windtunnel.search.budget.wish import Wish
    from windtunnel.spec import Model, load_law, load_model
    from windtunnel.workload import parameter_count

    if asked.model is not None and asked.parameters is not None:
        raise SpecError("--parameters", asked.parameters, "left out with --model, which has its own")
    chosen = None
    if asked.model is not None:
        found = asked.model if isinstance(asked.model, Model) else load_model_apart(str(asked.model))
        changes = [text.removeprefix("model.") for text in asked.overrides if text.startswith("model.")]
        chosen = load_model(found.model_dump(mode="json", exclude_none=True), changes)
    law = asked.law if isinstance(asked.law, (str, Path)) else asked.law.model_dump(mode="json", exclude_none=True)
    own = [text for text in asked.overrides if not text.strip().startswith("law.")]
    known = load_law(law, [text.strip().removeprefix("law.") for text in asked.overrides if text not in own])
    size = parameter_count(chosen) if chosen is not None else asked.parameters
    wish = Wish(known, asked.budget, asked.days, asked.loss, chosen, size, asked.tokens, asked.tokens_per_parameter, asked.goodput)
    return run(wish, tuple(asked.on) or MACHINES, tuple(asked.gpus), own, asked.progress)


plan = asks(PlanOptions)(plan_of)


@asks(DesignOptions)
def design(asked: DesignOptions) -> DesignResult:
    """Hardware from ranges: `trials` sampled designs of the job's machine, each with its best plan; needs the extra `search`.

    `fields`: by path, a range such as "2TB/s..8TB/s" or values to choose from, such as (8, 16) or "8,16"; fields of the plan with
    several values are open to the plan search of each design. `objective` as in `search`. Raises SpecError for a field that cannot
    vary.
    """
    import tomllib

    from windtunnel.jobs.search_space import DesignFields, premium_of
    from windtunnel.search.change import format_value
    from windtunnel.search.design import design as run
    from windtunnel.spec import dump_job, load_job

    fields = dict(asked.fields)
    written = [(k, v if isinstance(v, str) else ",".join(format_value(one) for one in v)) for k, v in fields.items()]
    parts = DesignFields.of(written)
    base = load_job(tomllib.loads(dump_job(asked.job)), parts.fixed) if parts.fixed else asked.job
    axes = parts.axes(base)
    return run(
        parts.space_of(base),
        axes,
        asked.objective if isinstance(asked.objective, str) else ",".join(asked.objective),
        trials=asked.trials,
        seed=asked.seed,
        study=asked.study,
        premiums=[premium_of(path, float(dollars), axes) for path, dollars in dict(asked.premiums or ()).items()],
        fixed_plan=asked.fixed_plan,
        predictions=asked.predictions,
        stop=asked.stop,
    )
