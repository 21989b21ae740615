"""`windtunnel memory JOB`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.common import Json, Megatron, ModelFile, On, Quiet, Sets, busy, writable, write_json
from windtunnel.cli.source import job_of
from windtunnel.memory import OverTime, Pooled, StageMemory, dumps, memory_of, over_time, shortfall, together, why
from windtunnel.memory import replay as play
from windtunnel.memory import snapshot as take_snapshot
from windtunnel.predict import predict
from windtunnel.predict.answer.timeline import pass_times
from windtunnel.spec import Job
from windtunnel.workload import Workload, build

if TYPE_CHECKING:
    from rich.table import Table

Replay = Annotated[
    bool,
    typer.Option("--replay", help="Print what a replay of PyTorch's caching allocator comes to, beside the model's figures."),
]
Snapshot = Annotated[
    str | None,
    typer.Option(
        "--snapshot", metavar="FILE.pickle", help="Write a stage's highest point for PyTorch's viewer, pytorch.org/memory_viz."
    ),
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
    int | None, typer.Option("--stage", min=0, help="Stage of the snapshot (left out: the fullest) or of the picture (all).")
]


def _step_time(job: Job) -> float:
    return predict(job).step_time_s


def _beside(stages: Sequence[StageMemory], replayed: Sequence[Pooled]) -> Table:
    """The model's figures and the replay's, a row a stage."""
    from rich.table import Table

    from windtunnel.report import words as say

    title = "Model, and replay of PyTorch's caching allocator"
    table = Table("stage", title=title, title_justify="left", title_style="bold", box=None)
    parts = ("allocated", "reserved", "fragmentation")
    for part in parts:
        table.add_column(part, justify="right")
        table.add_column("replay", justify="right")
    for model, found in zip(stages, replayed, strict=True):
        table.add_row(str(model.stage), *(say.size(getattr(who, part)) for part in parts for who in (model, found)))
    return table


def _over_time(job: Job, workload: Workload, stages: Sequence[StageMemory], stage: int | None) -> list[OverTime]:
    """The step of each stage, or of one, played at the times at which its passes run."""
    timeline = predict(job).timeline
    chosen = stages if stage is None else [stages[stage]]
    return [
        over_time(
            workload,
            m.stage,
            pass_times(timeline, workload.schedule[m.stage], m.stage),
            m.context,
            m.usable - m.context if m.fits else math.inf,
        )
        for m in chosen
    ]


def _highest(moments: Sequence[OverTime]) -> Table:
    """What each stage's process came to at most."""
    from rich.table import Table

    from windtunnel.report import words as say

    table = Table("stage", title="Highest points of a replayed step", title_justify="left", title_style="bold", box=None)
    for head in ("allocated", "reserved", "nvidia-smi", "after"):
        table.add_column(head, justify="right")
    for one in moments:
        sizes = (one.allocated, one.reserved, one.shown)
        when = float(one.time[one.allocated.argmax()])
        table.add_row(str(one.stage), *(say.size(float(size.max())) for size in sizes), say.seconds(when))
    return table


def command(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Catalogue name, job file, config.json or Megatron-LM flags.")
    ] = None,
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
        from windtunnel.report.memory_picture import check_name

        check_name(picture)
    loaded = job_of(job, sets, on, model, megatron)
    if stage is not None and stage >= loaded.job.plan.pp:
        raise SpecError("--stage", stage, f"a pipeline stage, 0 to {loaded.job.plan.pp - 1}")
    with busy(f"counting the memory of {loaded.job.name}"):
        workload = build(loaded.job)
        stages = memory_of(loaded.job, workload)
        missing, advice = shortfall(loaded.job, stages, _step_time)
        several = together(loaded.job, _step_time) if missing and not advice else ()
        now = _step_time(loaded.job) if advice else None
        replayed = play(workload, stages) if replay else ()
        moments = _over_time(loaded.job, workload, stages, stage) if picture is not None else []
        if picture is not None:
            from windtunnel.report.memory_picture import write

            write(moments, loaded.job.name, picture)
        if snapshot is not None:
            chosen = max(stages, key=lambda s: s.allocated) if stage is None else stages[stage]
            Path(snapshot).write_bytes(dumps(take_snapshot(workload, chosen.stage)))
    fits = all(stage.fits for stage in stages)
    loaded.tell()
    if json is not None:
        rows = [{k: v for k, v in vars(stage).items() if k != "curve"} for stage in stages]
        answer = {
            "job": loaded.job,
            "memory": rows,
            "fits": fits,
            "shortfall_bytes": missing,
            "step_time_s": now,
            "advice": [{"set": f"{a.path}={a.value}", "spare_bytes": a.spare, "step_time_s": a.seconds} for a in advice],
            "why": why(workload, stages),
            "together": [
                {"set": [f"{path}={value}" for path, value in t.changes], "spare_bytes": t.spare, "step_time_s": t.seconds}
                for t in several
            ],
        }
        if replay:
            answer["replay"] = [
                vars(found) | {"stage": m.stage, "fragmentation": found.fragmentation}
                for m, found in zip(stages, replayed, strict=True)
            ]
        if moments:
            from windtunnel.report.memory_picture import plain

            answer["over_time"] = [plain(one) for one in moments]
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
    if replay:
        console.print(_beside(stages, replayed))
        if any(found.failed for found in replayed):
            console.print(
                Text(
                    "In the replay the allocator finds no room in one piece. "
                    "Try --set runtime.alloc_conf=expandable_segments:True.",
                    style="yellow",
                )
            )
    if moments:
        console.print(_highest(moments))
    if fits:
        free = -max(s.missing for s in stages)
        left = f"{say.size(free)} free" if free else "nothing to spare"
        console.print(Text(f"Fits, with {left} on the fullest stage.", style="green"))
        return
    short = max(stages, key=lambda s: s.missing).short
    where = "" if short == "GPU memory" else f"of {short} "
    console.print(Text(f"DOES NOT FIT: {say.size(missing)} {where}missing on the fullest stage.", style="bold red"))
    for sentence in why(workload, stages):
        console.print(Text(f"  {sentence}"))
    for a in advice:
        price = f"; a step takes {say.seconds(a.seconds)} ({a.seconds / now - 1.0:+.1%})" if a.seconds and now else ""
        console.print(Text(f"  --set {a.path}={a.value} makes it fit, with {say.size(a.spare)} free{price}"))
    if several:
        console.print(Text("No single change of the plan makes it fit. Several do together, the fastest first:"))
    for t in several:
        typed = " ".join(f"--set {path}={value}" for path, value in t.changes)
        took = f"; a step takes {say.seconds(t.seconds)}" if t.seconds else ""
        console.print(Text(f"  {typed}\n    {say.size(t.spare)} free{took}"), soft_wrap=True)
    if not advice and not several:
        console.print(Text("No plan of this micro batch and framework fits: use more GPUs, or plan.micro_batch=1."))
