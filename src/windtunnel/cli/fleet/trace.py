"""`windtunnel fleet trace RUN --rank N`: a profiler trace of a rank that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  windtunnel fleet trace out/fleet --rank 5
  windtunnel fleet trace out/fleet/job --rank 5 --steps 10
"""


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a watched run that trains.")],
    *,
    rank: Annotated[int, typer.Option(help="The rank that takes the trace.", min=0)] = 0,
    steps: Annotated[int, typer.Option(help="Steps of the trace.", min=1)] = 3,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the trace.", min=1)] = 600,
) -> None:
    from windtunnel.fleet.launch.sidecars import COLLECTED
    from windtunnel.fleet.sources import run_folder
    from windtunnel.fleet.tracing import ask_for_trace, await_trace

    folder = run_folder(run)
    folder = folder.parent if folder.name == COLLECTED else folder
    ask_for_trace(folder, rank, steps)
    typer.echo(f"Asked rank {rank}; it begins at the end of its step.", err=True)
    path = await_trace(folder, rank, wait)
    typer.echo(path)
    typer.echo(f"Read it: windtunnel runs show {path}", err=True)
