"""`windtunnel memory JOB`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.common import Json, Megatron, ModelFile, On, Quiet, Sets, busy, writable, write_json
from windtunnel.cli.source import job_of
from windtunnel.memory import memory_of, shortfall
from windtunnel.workload import build


def command(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Catalogue name, job file, config.json or Megatron-LM flags.")
    ] = None,
    sets: Sets = None,
    json: Json = None,
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json))
    loaded = job_of(job, sets, on, model, megatron)
    with busy(f"counting the memory of {loaded.job.name}"):
        stages = memory_of(loaded.job, build(loaded.job))
        missing, advice = shortfall(loaded.job, stages)
    fits = all(stage.fits for stage in stages)
    loaded.tell()
    if json is not None:
        rows = [{k: v for k, v in stage.plain().items() if k != "curve"} for stage in stages]
        answer = {
            "job": loaded.job,
            "memory": rows,
            "fits": fits,
            "shortfall_bytes": missing,
            "advice": [{"set": f"{a.path}={a.value}", "spare_bytes": a.spare} for a in advice],
        }
        write_json(answer, json)
    if quiet or json == "-":
        return
    from rich.console import Console
    from rich.text import Text

    from windtunnel.report import words as say
    from windtunnel.report.terminal import memory

    console = Console()
    console.print(Text(f"{loaded.job.name}: fullest GPU of each pipeline stage", style="bold"))
    console.print(memory(stages, console.width))
    if fits:
        console.print(
            Text(f"Fits, with {say.size(-max(s.missing for s in stages))} free on the fullest stage.", style="green")
        )
        return
    console.print(Text(f"DOES NOT FIT: {say.size(missing)} missing on the fullest stage.", style="bold red"))
    for a in advice:
        console.print(Text(f"  --set {a.path}={a.value} makes it fit, with {say.size(a.spare)} free"))
    if not advice:
        console.print(Text("  No single change of the plan makes it fit: combine several, or use more GPUs."))
