"""`windtunnel fleet compare RUN JOB`: a watched run beside the prediction of its job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.cli.common import Json, On, Sets, busy, writable, write_json

EXAMPLES = """\b
Examples:
  windtunnel fleet compare fleet/my-run job.toml
  windtunnel fleet compare fleet/my-run llama3-8b-8xh100 --last 50 --json compared.json
"""


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a watched run: its rings, or what a collector keeps.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job that it is a run of: a name of the catalogue or a file.")],
    sets: Sets = None,
    on: On = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="PARQUET", help="Measurements of the job's GPU; they answer before curves.")
    ] = None,
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Compare the last N steps only.")] = None,
    json: Json = None,
) -> None:
    from windtunnel.cli.fleet_source import aligned_run
    from windtunnel.cli.source import job_of
    from windtunnel.report.fleet_compare import show_comparison
    from windtunnel.runs.fleet_comparison import compare_sections
    from windtunnel.runs.fleet_watching import calls_block

    writable(("--json", json))
    loaded = job_of(job, sets, on)
    with busy("reading and comparing"):
        recorded, _ = aligned_run(run)
        comparison = compare_sections(recorded.sections, loaded.job, blocking=calls_block(recorded), last=last, profile=profile)
    loaded.tell()
    if json is not None:
        write_json(comparison.as_dict(), json)
    if json != "-":
        from rich.console import Console

        show_comparison(comparison, Console())
