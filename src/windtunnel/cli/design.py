"""`windtunnel design JOB`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import Megatron, ModelFile, On, Source
from windtunnel.cli.shared.job import job_of, tell_source
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import stoppable
from windtunnel.jobs.design_fields import DesignFields, premium_of
from windtunnel.search.design import DesignField, Premium, design

EXAMPLES = """\b
Examples:
  windtunnel design llama2-70b-64xh100 --set cluster.node.gpu.memory_bandwidth=2TB/s..8TB/s --set cluster.node.scale_up.size=8,16,32
  windtunnel design llama2-70b-64xh100 --set cluster.node.gpu.memory=80GiB..192GiB --premium cluster.node.gpu.memory=0.01 \\
      --objective tokens,dollars --study sqlite:///design.db
"""


@with_outputs
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
    model: ModelFile = None,
    megatron: Megatron = None,
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.search.design_sheet import design_sheet

    fields = DesignFields.of([_pair("--set", text) for text in sets or []])
    loaded = job_of(job, list(fields.fixed), on, model, megatron, of_a_run=True)
    axes = fields.axes(loaded.job)
    tell_source(loaded)
    with stoppable(f"designing for {loaded.job.name}") as progress:
        result = design(
            fields.space_of(loaded.job),
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
    outputs.show(design_sheet(result, top), result.as_dict)


def _premium(text: str, axes: Sequence[DesignField]) -> Premium:
    key, dollars = _pair("--premium", text)
    try:
        return premium_of(key, float(dollars), axes)
    except (ValueError, SpecError):
        ranges = ", ".join(axis.path for axis in axes if not axis.values)
        raise SpecError("--premium", text, f"dollars of a range: {ranges or 'there is none'}") from None


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, values = text.partition("=")
    if not equals:
        raise SpecError(option, text, "path=value")
    return key.strip(), values.strip()
