"""Verbs that look for better jobs: `windtunnel search JOB`, `design JOB`, `plan --budget DOLLARS --days DAYS --loss NATS` and
`sensitivity JOB`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.common import stoppable
from windtunnel.cli.shared.job import JobSource, tell_source
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.search.options import DesignCommandOptions, SearchCommandOptions

if TYPE_CHECKING:
    from windtunnel.jobs.search_space import Question
    from windtunnel.search.design import DesignField, Premium


def command(asked: SearchCommandOptions, outputs: Outputs) -> None:
    from windtunnel.jobs.search_space import predict_command

    source, outputs = outputs.source, replace(outputs, source=None)
    assert source is not None
    fidelity, top = check_fidelity(asked.network), asked.top
    if asked.out is not None and Path(asked.out).suffix != ".parquet":
        raise FileError("--out", asked.out, "a name that ends in .parquet", "--json writes what is reported as JSON.")
    from windtunnel.search.api import search
    from windtunnel.search.find import SearchLimits
    from windtunnel.search.margin import usual_margin
    from windtunnel.search.objective import objectives
    from windtunnel.search.result import rerank
    from windtunnel.search.sheet import search_sheet, space_sheet
    from windtunnel.search.space import space_table

    objective = str(asked.objective)
    objectives(objective)
    ray = next((name for name in asked.on if name == "ray" or name.startswith("ray:")), None)
    wanted = _question(source, [name for name in asked.on if name != ray], asked.gpus, asked.space_file)
    space_shown = space_sheet(wanted.spaces, wanted.labels)
    if asked.only_space:
        outputs.show(space_shown, space_table(wanted.spaces, wanted.labels))
        return
    outputs.print(space_shown)
    tell_source(wanted.loaded)
    with stoppable(f"searching plans of {wanted.loaded.job.name}") as progress:
        try:
            result = search(
                [space.job for space in wanted.spaces],
                [space.fields for space in wanted.spaces],
                objective,
                at_most={name: most for name, most in (("days", asked.deadline), ("bill", asked.budget)) if most is not None},
                margin=usual_margin() if asked.margin is None else asked.margin,
                limits=SearchLimits(asked.gap, math.inf if asked.limit is None else asked.limit),
                processes=asked.processes,
                ray=None if ray is None else ray.partition(":")[2] or "auto",
                out=None if asked.out is None else str(asked.out),
                stop=progress,
                labels=wanted.labels,
                levers=True,
                fixed=wanted.stated,
                top=top,
            )
        except SpecError:
            if progress(1.0):  # Ctrl-C before a plan was found: no limit of time was set
                raise KeyboardInterrupt from None
            raise
        stopped = progress(1.0)
    result = result if stopped else rerank(result, fidelity, top)
    sets = [word for text in wanted.overrides[result.ranked[0].frame] for word in ("--set", text)]
    words = (*_job_words(source), *sets)
    result = replace(result, own=wanted.own, command=predict_command(result, words))
    outputs.show(partial(search_sheet, result, top), result.as_dict)
    if stopped:  # what was found is told
        raise KeyboardInterrupt


def _question(source: JobSource, machines: list[str], gpus: str | None, space: str | None) -> Question:
    from windtunnel.jobs.loaded import LoadedJob
    from windtunnel.jobs.search_space import question

    sets = [*source.sets, *([] if gpus is None else [f"cluster.gpus={gpus}"])]
    several = machines if len(machines) > 1 else []
    single = machines[0] if len(machines) == 1 else None

    def load(overrides: list[str]) -> LoadedJob:
        machine = next((text.partition("=")[2] for text in overrides if several and text.startswith("cluster=")), single)
        own = [text for text in overrides if not (several and text.startswith("cluster="))]
        return replace(source, sets=own, on=machine).load()

    if not sets and (source.job, source.model, source.megatron) == (None, None, None):
        raise SpecError(
            "JOB", "nothing", "a job, or a model with --on CLUSTER", "For example: llama3.1-70b --on h100-ib --gpus 512."
        )
    return question(load, sets, space, several)


def _job_words(source: JobSource) -> list[str]:
    """The words of this command that name the job."""
    words = [] if source.job is None else [source.job]
    for option, value in (("--model", source.model), ("--megatron", source.megatron)):
        words += [] if value is None else [option, value]
    return words


def design(asked: DesignCommandOptions, outputs: Outputs) -> None:
    from windtunnel.jobs.search_space import DesignFields
    from windtunnel.search.design import design
    from windtunnel.search.design_sheet import design_sheet

    source, outputs = outputs.source, replace(outputs, source=None)
    assert source is not None
    fields = DesignFields.of([(name, str(values)) for name, values in dict(asked.fields).items()])
    source.sets = fields.fixed
    loaded = source.load()
    axes = fields.axes(loaded.job)
    tell_source(loaded)
    with stoppable(f"designing for {loaded.job.name}") as progress:
        result = design(
            fields.space_of(loaded.job),
            axes,
            str(asked.objective),
            trials=asked.trials,
            seed=asked.seed,
            study=asked.study,
            premiums=[_premium(key, dollars, axes) for key, dollars in dict(asked.premiums).items()],
            fixed_plan=asked.fixed_plan,
            predictions=asked.predictions,
            stop=progress,
        )
    outputs.show(design_sheet(result, asked.top), result.as_dict)


def _premium(key: str, dollars: str | float, axes: Sequence[DesignField]) -> Premium:
    from windtunnel.jobs.search_space import premium_of

    try:
        return premium_of(key, float(dollars), axes)
    except (ValueError, SpecError):
        ranges = ", ".join(axis.path for axis in axes if not axis.values)
        raise SpecError("--premium", f"{key}={dollars}", f"dollars of a range: {ranges or 'there is none'}") from None
