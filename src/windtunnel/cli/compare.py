"""`windtunnel compare A B`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli.common import Json, Network, Sets, busy, writable, write_json
from windtunnel.cli.source import job_of
from windtunnel.predict import predict
from windtunnel.report.compare import compare, render

EXAMPLES = """\b
Examples:
  windtunnel compare llama2-70b-64xh100 llama2-70b-64xh100 --set-b plan.tp=8
  windtunnel compare gpt3-175b-64 gpt3-175b-64 --set-b cluster=b200-ib
"""


def command(
    a: Annotated[str, typer.Argument(metavar="A", help="A job.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another job, or the same with --set-b.")],
    sets: Sets = None,
    set_a: Annotated[
        list[str] | None, typer.Option("--set-a", metavar="KEY=VALUE", help="Change a field of A only; repeatable.")
    ] = None,
    set_b: Annotated[
        list[str] | None, typer.Option("--set-b", metavar="KEY=VALUE", help="Change a field of B only; repeatable.")
    ] = None,
    network: Network = "closed",
    json: Json = None,
) -> None:
    fidelity = check_fidelity(network)
    writable(("--json", json))
    jobs = [job_of(name, [*(sets or []), *(own or [])]).job for name, own in ((a, set_a), (b, set_b))]
    with busy("predicting both"):
        first, second = (predict(job, fidelity) for job in jobs)
    comparison = compare(first, second)
    if json is not None:
        write_json(comparison.as_dict(), json)
    if json != "-":
        from rich.console import Console

        console = Console()
        console.print(render(comparison, console.width))
