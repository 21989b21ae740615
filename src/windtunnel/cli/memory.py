"""`windtunnel memory JOB`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from windtunnel.api.step import memory
from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import Megatron, ModelFile, On, Sets, Source, show_spinner, writable, write
from windtunnel.cli.shared.job import job_of, tell_assumed, tell_ignored
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.pages import said_command
from windtunnel.report.memory import MemoryReport, check_stage

Replay = Annotated[
    bool,
    typer.Option("--replay", help="Replay PyTorch's caching allocator and print its result beside the model's figures."),
]
Snapshot = Annotated[
    str | None,
    typer.Option("--snapshot", metavar="FILE.pickle", help="Write a stage's peak as a snapshot for pytorch.org/memory_viz."),
]
Picture = Annotated[
    str | None,
    typer.Option(
        "--picture",
        metavar="FILE.svg",
        help="Replay a whole step and draw its memory over time, .svg or .html: all "
        "stages, or --stage N; JSON then has `over_time`.",
    ),
]
Stage = Annotated[
    int | None, typer.Option("--stage", min=0, help="Stage of the snapshot (default: the fullest) or of the picture (all).")
]


EXAMPLES = """\b
Examples:
  windtunnel memory llama3-8b-8xh100 --set plan.seq=32768
  windtunnel memory config.json --on h100-ib --set cluster.gpus=64 --json -
  windtunnel memory llama3-8b-8xh100 --picture memory.svg
"""


@with_outputs
def command(
    job: Source = None,
    sets: Sets = None,
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
    replay: Replay = False,
    snapshot: Snapshot = None,
    picture: Picture = None,
    stage: Stage = None,
    *,
    outputs: Outputs,
) -> None:
    writable(("--snapshot", snapshot), ("--picture", picture))
    if picture is not None and not picture.lower().endswith((".svg", ".html")):
        raise SpecError("--picture", picture, "a name that ends in .svg or .html")
    loaded = job_of(job, sets, on, model, megatron)
    check_stage(loaded.job, stage)
    with show_spinner(f"counting the memory of {loaded.job.name}"):
        counted = memory(loaded.job, replay=replay, over_time=picture is not None, stage=stage)
        if picture is not None:
            _write_picture(counted, picture)
        if snapshot is not None:
            counted.snapshot(snapshot, stage)
    tell_assumed(loaded)
    from windtunnel.report.memory_sheet import memory_sheet

    outputs.show(partial(memory_sheet, counted), counted.as_dict)
    tell_ignored(loaded)


def _write_picture(counted: MemoryReport, path: str) -> None:
    """The picture as a file, .svg or .html; FileError where it cannot be written."""
    from windtunnel.report.memory_sheet import memory_sheet, over_time_picture

    if not path.lower().endswith(".svg"):
        from windtunnel.draw.page.sheet import write_page

        write_page(memory_sheet(counted), path, said_command(), option="--picture")
        return
    from windtunnel.draw.page.areas import memory_svg

    write(memory_svg(over_time_picture(counted.moments, counted.job.name)), path, "--picture")
