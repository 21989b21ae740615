"""`windtunnel fleet compare RUN JOB`: a watched run beside the prediction of its job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import On, Sets, show_spinner
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel fleet compare fleet/my-run job.toml
  windtunnel fleet compare fleet/my-run llama3-8b-8xh100 --last 50 --json compared.json
  windtunnel fleet compare fleet/today job.toml --usual fleet/last-week
"""


@with_outputs
def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a watched run: its rings, or what a collector keeps.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job that it is a run of: a name of the catalogue or a file.")],
    sets: Sets = None,
    on: On = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="PARQUET", help="Measurements of the job's GPU; they take precedence over fitted curves."
        ),
    ] = None,
    usual: Annotated[
        Path | None,
        typer.Option("--usual", metavar="RUN", help="Compare with this earlier run of the job instead of the prediction."),
    ] = None,
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Compare the last N steps only.")] = None,
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.cli.shared.job import job_of, tell_source
    from windtunnel.runs.api import compare_fleet
    from windtunnel.runs.fleet.comparison_sheet import comparison_sheet

    if usual is not None and profile is not None:
        raise SpecError("--profile", profile, "not together with --usual", "An earlier run needs no measurements of kernels.")
    loaded = job_of(job, sets, on, of_a_run=True)
    with show_spinner("reading and comparing"):
        comparison = compare_fleet(run, loaded.job, last=last, profile=profile, usual=usual)
    tell_source(loaded)
    outputs.show(comparison_sheet(comparison), comparison.as_dict)
