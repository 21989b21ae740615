"""`windtunnel goodput JOB`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.shared.amounts import days as days_of
from windtunnel.cli.shared.common import Megatron, ModelFile, Network, On, Sets, Source, print_list
from windtunnel.cli.shared.job import job_of, tell_assumed, tell_ignored
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.goodput import goodput

EXAMPLES = """\b
Examples:
  windtunnel goodput llama3.1-405b-16384 --set reliability=llama3-2024
  windtunnel goodput llama3.1-405b-16384 --set reliability=rsc-1 --days 54 --closed
  windtunnel goodput megascale-175b-12288 --set reliability=megascale --set reliability.spares=8 --json -
"""

DEFAULT = "llama3-2024"
"""Failures of a job that states none: the largest published run with counts by cause."""

DEFAULT_DAYS = 30.0


@with_outputs
def command(
    job: Source = None,
    sets: Sets = None,
    days: Annotated[
        str | None,
        typer.Option(
            "--days", help="Wall time, such as 30, 30d or '3 weeks', of the run; default: as long as the job's tokens take."
        ),
    ] = None,
    closed: Annotated[bool, typer.Option("--closed", help="The closed form alone, without simulated runs.")] = False,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Simulated runs.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulated runs.")] = 1,
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
    network: Network = "closed",
    *,
    outputs: Outputs,
) -> None:
    check_fidelity(network)
    assumed, wall = [], days_of(days, "--days")
    loaded = job_of(job, sets, on, model, megatron, of_a_run=True)
    if loaded.job.reliability is None or not any(loaded.job.reliability.kinds()):
        loaded = job_of(job, [f"reliability={DEFAULT}", *(sets or [])], on, model, megatron, of_a_run=True)
        assumed.append(f"failures as {DEFAULT}: the job states none")
    if loaded.job.tokens is None and wall is None:
        wall = DEFAULT_DAYS
        assumed.append(f"{DEFAULT_DAYS:g} days of wall time: the job has no `tokens`")
    with bar(f"simulating runs of {loaded.job.name}") as progress:
        answer = goodput(
            loaded.job,
            wall,
            0 if closed else replicas,
            seed,
            network=network,
            threads=os.cpu_count() or 1,
            progress=None if closed else progress,
        )
    tell_assumed(loaded)
    print_list(assumed, "assumed")
    from windtunnel.goodput.sheet import run_sheet

    outputs.show(run_sheet(answer), answer.as_dict())
    tell_ignored(loaded)
