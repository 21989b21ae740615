"""`windtunnel memory JOB`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.api.step import memory
from windtunnel.cli.shared.common import Json, Megatron, ModelFile, On, Quiet, Sets, Source, show_spinner, writable, write_json
from windtunnel.cli.shared.job import job_of, tell_assumed, tell_ignored
from windtunnel.cli.shared.pages import said_command
from windtunnel.memory import OverTime, Pooled, StageMemory
from windtunnel.report.memory import MemoryReport, check_stage
from windtunnel.search.levers.flags import flags_of, framework_name
from windtunnel.spec import Job

if TYPE_CHECKING:
    from rich.table import Table

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


def _table_of_both(stages: Sequence[StageMemory], replayed: Sequence[Pooled]) -> Table:
    """The figures of the model and of the replay, one row per stage."""
    from rich.table import Table

    from windtunnel.sheet import numbers as say

    title = "Model, and replay of PyTorch's caching allocator"
    table = Table("stage", title=title, title_justify="left", title_style="bold", box=None)
    parts = ("allocated", "reserved", "fragmentation")
    for part in parts:
        table.add_column(part, justify="right")
        table.add_column("replay", justify="right")
    for model, replay in zip(stages, replayed, strict=True):
        table.add_row(str(model.stage), *(say.size(getattr(who, part)) for part in parts for who in (model, replay)))
    return table


def _highest(moments: Sequence[OverTime]) -> Table:
    """Peaks of each stage's process."""
    from rich.table import Table

    from windtunnel.sheet import numbers as say

    table = Table("stage", title="Highest points of a replayed step", title_justify="left", title_style="bold", box=None)
    for head in ("allocated", "reserved", "nvidia-smi", "after"):
        table.add_column(head, justify="right")
    for one in moments:
        sizes = (one.allocated, one.reserved, one.shown)
        when = float(one.time[one.allocated.argmax()])
        table.add_row(str(one.stage), *(say.size(float(size.max())) for size in sizes), say.seconds(when))
    return table


EXAMPLES = """\b
Examples:
  windtunnel memory llama3-8b-8xh100 --set plan.seq=32768
  windtunnel memory config.json --on h100-ib --set cluster.gpus=64 --json -
  windtunnel memory llama3-8b-8xh100 --picture memory.svg
"""


def command(
    job: Source = None,
    sets: Sets = None,
    json: Json = None,
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
    replay: Replay = False,
    snapshot: Snapshot = None,
    picture: Picture = None,
    stage: Stage = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json), ("--snapshot", snapshot), ("--picture", picture))
    if picture is not None:
        from windtunnel.report.page.memory import check_name

        check_name(picture)
    loaded = job_of(job, sets, on, model, megatron)
    check_stage(loaded.job, stage)
    with show_spinner(f"counting the memory of {loaded.job.name}"):
        counted = memory(loaded.job, replay=replay, over_time=picture is not None, stage=stage)
        if picture is not None:
            from windtunnel.report.page.memory import write

            write(counted.moments, loaded.job, picture, said_command())
        if snapshot is not None:
            counted.snapshot(snapshot, stage)
    tell_assumed(loaded)
    if json is not None:
        write_json(counted.as_dict(), json)
    if not quiet and json != "-":
        _print(loaded.job, counted)
    tell_ignored(loaded)


def _what_is_left(job: Job) -> str:
    """What to try where no change of the plan is enough."""
    lora = getattr(job.model, "lora", None)
    ways = ["use more GPUs"]
    ways += ["plan.micro_batch=1"] if job.plan.micro_batch > 1 else []
    ways += ["4-bit frozen weights, model.lora.base=nf4"] if lora is not None and lora.base == "none" and job.plan.tp == 1 else []
    return ", or ".join(ways)


def _print(job: Job, counted: MemoryReport) -> None:
    from rich.console import Console
    from rich.text import Text

    from windtunnel.report.page.memory import no_room_sentence
    from windtunnel.report.text.terminal import memory as memory_table
    from windtunnel.report.words.verdict import verdict
    from windtunnel.sheet import numbers as say

    console = Console()
    console.print(Text(f"{job.name}: fullest GPU of each pipeline stage", style="bold"))
    console.print(memory_table(counted.stages, console.width))
    if counted.replayed:
        console.print(_table_of_both(counted.stages, counted.replayed))
        if any(pooled.failed for pooled in counted.replayed):
            settings = "--set runtime.alloc_conf=expandable_segments:True"
            console.print(Text(f"In the replay the allocator finds no room in one piece. Try {settings}.", style="yellow"))
    if counted.moments:
        console.print(_highest(counted.moments))
        for one in counted.moments:
            if one.no_room is not None:
                console.print(Text(no_room_sentence(one), style="bold red"))
    if counted.fits:
        words, style = verdict(counted.stages)
        console.print(Text(f"{words[:1].upper()}{words[1:]} on the fullest stage.", style=style))
        return
    short = max(counted.stages, key=lambda s: s.missing).short
    where = "" if short == "GPU memory" else f"of {short} "
    console.print(Text(f"DOES NOT FIT: {say.size(counted.missing)} {where}missing on the fullest stage.", style="bold red"))
    for sentence in counted.why:
        console.print(Text(f"  {sentence}"))
    if not counted.fixes:
        console.print(Text(f"No change that was tried makes it fit: {_what_is_left(job)}."))
        return
    console.print(Text("What makes it fit, cheapest first (time a token, against this plan if it fitted):"))
    for fix in counted.fixes:
        console.print(Text(f"  {' '.join(f'--set {text}' for text in fix.change.sets)}"), soft_wrap=True)
        if flags := flags_of(fix.change.apply(job), fix.change.fields):
            console.print(Text(f"    {framework_name(job)}: {' '.join(flags)}", style="dim"), soft_wrap=True)
        spare = f"{say.size(max(0.0, fix.spare))} free" if fix.spare >= 2.0**20 else "nothing to spare"
        console.print(Text(f"    {spare}; a step takes {say.seconds(fix.step_time_s)} ({fix.price:+.1%} a token)"))
