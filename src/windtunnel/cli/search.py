"""`windtunnel search JOB`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.amounts import amount, days
from windtunnel.cli.shared.common import Megatron, ModelFile, Sets, Source, writable
from windtunnel.cli.shared.job import job_of, tell_source
from windtunnel.cli.shared.machines import split_list
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import stoppable
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.jobs.search_space import Question, predict_command, question

EXAMPLES = """\b
Examples:
  windtunnel search llama3.1-70b --on h100-ib --gpus 512
  windtunnel search config.json --on h100-ib --gpus 512 --set plan.tp=4,8 --set runtime.overlap_tp=true,false
  windtunnel search llama2-70b-64xh100 --gpus 64,128,256 --objective tokens,dollars
  windtunnel search deepseek-v3-2048xh800 --out plans.parquet --limit 60
"""


@with_outputs
def command(  # long: one option a line
    job: Source = None,
    sets: Sets = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="CLUSTER|JOB|ray", help="A machine; repeat it to choose among several. ray: predict on a Ray cluster."
        ),
    ] = None,
    gpus: Annotated[str | None, typer.Option("--gpus", metavar="N,...", help="Numbers of GPUs to choose from.")] = None,
    objective: Annotated[
        str, typer.Option("--objective", metavar="NAME,...", help="What to optimise; several give a Pareto front.")
    ] = "time",
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="DAYS", help="Longest time of the whole run, with failures if stated."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="DOLLARS", help="Highest cost of the whole run, such as 2M.")
    ] = None,
    space: Annotated[str | None, typer.Option("--space", metavar="FILE", help="A file of fields and the values to try.")] = None,
    margin: Annotated[
        float | None,
        typer.Option("--margin", min=0.0, max=0.9, help="Share of GPU memory to keep free; default: what its predictions err by."),
    ] = None,
    gap: Annotated[
        float, typer.Option("--gap", min=0.0, max=0.9, help="Stop when no plan can be better by more than this share.")
    ] = 0.0,
    limit: Annotated[float | None, typer.Option("--limit", min=0.0, help="Seconds of predictions.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Worker processes; default: one for each core.")] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE.parquet", help="Keep predicted plans, and continue from them.")
    ] = None,
    network: Annotated[
        str, typer.Option("--network", help="Order the first plans once more over this network: flow or packet.")
    ] = "closed",
    top: Annotated[int, typer.Option("--top", min=1, help="Plans to show.")] = 10,
    only_space: Annotated[
        bool, typer.Option("--dry-run", help="Print the space (with --json: as JSON), and search nothing.")
    ] = False,
    model: ModelFile = None,
    megatron: Megatron = None,
    *,
    outputs: Outputs,
) -> None:
    fidelity = check_fidelity(network)
    writable(("--out", out))
    if out is not None and Path(out).suffix != ".parquet":
        raise FileError("--out", out, "a name that ends in .parquet", "--json writes what is reported as JSON.")
    from windtunnel.search.api import search
    from windtunnel.search.find import SearchLimits
    from windtunnel.search.margin import usual_margin
    from windtunnel.search.objective import objectives
    from windtunnel.search.rerank import rerank
    from windtunnel.search.sheet import search_sheet, space_sheet
    from windtunnel.search.space import space_table

    most = _limits(days(deadline, "--deadline"), amount(budget, "--budget"))
    objectives(objective)
    named = split_list(on)
    ray = next((name for name in named if name == "ray" or name.startswith("ray:")), None)
    machines = [name for name in named if name != ray]
    asked = _question(job, list(sets or []), machines, gpus, space, model, megatron)
    space_shown = space_sheet(asked.spaces, asked.labels)
    if only_space:
        outputs.show(space_shown, space_table(asked.spaces, asked.labels))
        return
    outputs.print(space_shown)
    tell_source(asked.loaded)
    with stoppable(f"searching plans of {asked.loaded.job.name}") as progress:
        try:
            result = search(
                [space.job for space in asked.spaces],
                [space.fields for space in asked.spaces],
                objective,
                at_most=most,
                margin=usual_margin() if margin is None else margin,
                limits=SearchLimits(gap, math.inf if limit is None else limit),
                processes=jobs,
                ray=None if ray is None else ray.partition(":")[2] or "auto",
                out=out,
                stop=progress,
                labels=asked.labels,
                levers=True,
                fixed=asked.stated,
                top=top,
            )
        except SpecError:
            if progress(1.0):  # Ctrl-C before a plan was found: no limit of time was set
                raise KeyboardInterrupt from None
            raise
        stopped = progress(1.0)
    result = result if stopped else rerank(result, fidelity, top)
    words = (*_job_words(job, model, megatron), *_options(asked.overrides[result.ranked[0].frame]))
    result = replace(result, own=asked.own, command=predict_command(result, words))
    outputs.show(partial(search_sheet, result, top), result.as_dict)
    if stopped:  # what was found is told
        raise KeyboardInterrupt


def _question(
    job: str | None,
    sets: list[str],
    machines: list[str],
    gpus: str | None,
    space: str | None,
    model: str | None,
    megatron: str | None,
) -> Question:
    if gpus is not None:
        sets = [*sets, f"cluster.gpus={gpus}"]
    several = machines if len(machines) > 1 else []
    single = machines[0] if len(machines) == 1 else None

    def load(overrides: list[str]) -> LoadedJob:
        machine = next((text.partition("=")[2] for text in overrides if several and text.startswith("cluster=")), single)
        own = [text for text in overrides if not (several and text.startswith("cluster="))]
        return job_of(job, own, machine, model, megatron, of_a_run=True)

    if not sets and job is None and model is None and megatron is None:
        raise SpecError(
            "JOB", "nothing", "a job, or a model with --on CLUSTER", "For example: llama3.1-70b --on h100-ib --gpus 512."
        )
    return question(load, sets, space, several)


def _limits(deadline: float | None, budget: float | None) -> dict[str, float]:
    limits = {}
    for name, option, limit in (("days", "--deadline", deadline), ("bill", "--budget", budget)):
        if limit is not None:
            if not (limit > 0.0 and math.isfinite(limit)):
                raise SpecError(option, limit, "a finite number above 0, or leave it out")
            limits[name] = limit
    return limits


def _options(overrides: tuple[str, ...]) -> list[str]:
    return [word for text in overrides for word in ("--set", text)]


def _job_words(job: str | None, model: str | None, megatron: str | None) -> list[str]:
    """The words of this command that name the job."""
    words = [] if job is None else [job]
    for option, value in (("--model", model), ("--megatron", megatron)):
        words += [] if value is None else [option, value]
    return words
