"""`windtunnel design JOB`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.search_space import question
from windtunnel.cli.shared.common import Json, Megatron, ModelFile, On, Quiet, Source, writable, write_json
from windtunnel.cli.shared.job import job_of, tell_source
from windtunnel.cli.shared.progress import stoppable
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.search.design import DesignField, Premium, design, field_of
from windtunnel.search.space import SWITCHES, Space, split_values
from windtunnel.spec import dump_job, load_job

EXAMPLES = """\b
Examples:
  windtunnel design llama2-70b-64xh100 --set cluster.node.gpu.memory_bandwidth=2TB/s..8TB/s --set cluster.node.scale_up.size=8,16,32
  windtunnel design llama2-70b-64xh100 --set cluster.node.gpu.memory=80GiB..192GiB --premium cluster.node.gpu.memory=0.01 \\
      --objective tokens,dollars --study sqlite:///design.db
"""


def command(  # long: one option a line
    job: Source = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=LOW..HIGH|A,B", help="A field to vary, or as in `windtunnel search`; repeatable."),
    ] = None,
    on: On = None,
    objective: Annotated[
        str, typer.Option("--objective", metavar="NAME,...", help="What to optimise; several give a Pareto front.")
    ] = "time",
    premium: Annotated[
        list[str] | None,
        typer.Option(
            "--premium", metavar="KEY=DOLLARS", help="Dollars a GPU-hour for each unit of a range above the job's own value."
        ),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Designs of the study, with those of earlier calls.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampler.")] = 0,
    study: Annotated[
        str | None, typer.Option("--study", metavar="URL", help="Keep trials, and continue from them: sqlite:///design.db.")
    ] = None,
    fixed_plan: Annotated[
        bool, typer.Option("--fixed-plan", help="Keep the job's plan; else each design gets its best one.")
    ] = False,
    predictions: Annotated[int, typer.Option("--predictions", min=1, help="Predictions for the plan of a design.")] = 24,
    top: Annotated[int, typer.Option("--top", min=1, help="Designs to show.")] = 10,
    json: Json = None,
    model: ModelFile = None,
    megatron: Megatron = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json))
    from rich.console import Console

    from windtunnel.report.text.design import render

    pairs = [_pair("--set", text) for text in sets or []]
    varied = {key: values for key, values in pairs if _varies(key, values)}
    plans = [f"{key}={values}" for key, values in pairs if key not in varied and _varies_in_search(key)]
    loaded = job_of(
        job, [f"{key}={values}" for key, values in pairs if key not in varied and not _opens(key, values)], on, model, megatron
    )
    table = tomllib.loads(dump_job(loaded.job))

    def load(overrides: Sequence[str]) -> LoadedJob:
        return LoadedJob(load_job(table, overrides))

    def space_of(overrides: Sequence[str]) -> Space:
        return question(load, [*plans, *overrides], None, ()).spaces[0]

    axes = [field_of(loaded.job, key, values) for key, values in varied.items()]
    tell_source(loaded)
    with stoppable(f"designing for {loaded.job.name}") as progress:
        result = design(
            space_of,
            axes,
            objective,
            trials=trials,
            seed=seed,
            study=study,
            premiums=[_premium(text, axes) for text in premium or []],
            fixed_plan=fixed_plan,
            predictions=predictions,
            stop=progress,
        )
    if json is not None:
        write_json(result.as_dict(), json)
    if not quiet and json != "-":
        Console(highlight=False).print(render(result, top))


def _premium(text: str, axes: Sequence[DesignField]) -> Premium:
    key, dollars = _pair("--premium", text)
    ranges = {axis.path: axis for axis in axes if not axis.values}
    if key not in ranges or not _is_number(dollars):
        raise SpecError("--premium", text, f"dollars of a range: {', '.join(ranges) or 'there is none'}")
    return Premium(ranges[key], float(dollars))


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, values = text.partition("=")
    if not equals:
        raise SpecError(option, text, "path=value")
    return key.strip(), values.strip()


def _varies_in_search(key: str) -> bool:
    """Whether the plan search of each design varies a field."""
    return key.startswith("plan.") and key != "plan.seq" or key in SWITCHES


def _opens(key: str, values: str) -> bool:
    return _varies_in_search(key) and len(split_values(key, values)) > 1


def _varies(key: str, values: str) -> bool:
    return ".." in values or not _varies_in_search(key) and len(split_values(key, values)) > 1


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False
