"""`windtunnel profile run JOB -o FILE.parquet`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.base.units import show_time
from windtunnel.cli.profile.sizes import duration, numbers, of_model, refuse_cpu, words
from windtunnel.cli.shared.common import Device, Modes, On, Quiet, Sets, Threads, notes, print_list, stoppable, writable, write_json

if TYPE_CHECKING:
    from windtunnel.profile.case import Case
    from windtunnel.profile.run import Outcome

MISSING = "is not installed"
"""Text in the reason why a library's modules were left out, if pip can install it."""

TIP = (
    "On a CPU the parts of layers of a millisecond or less seldom add up: take a wider model or a longer sequence, add "
    "--threads 1, or allow more with --tolerance 0.4."
)


def command(  # long: one option a line
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Catalogue name or job file: its model, shard shapes and number format.")
    ] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE.parquet", help="Dataset to write.")] = None,
    sets: Sets = None,
    on: On = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME|FILE", help="Without a JOB: this model, with the options that follow.")
    ] = None,
    seq: Annotated[str, typer.Option("--seq", metavar="N,...", help="With --model: tokens of a sequence.")] = "",
    micro_batch: Annotated[
        str, typer.Option("--micro-batch", metavar="N,...", help="With --model: sequences of a micro batch.")
    ] = "1",
    tp: Annotated[
        str, typer.Option("--tp", metavar="N,...", help="With --model: tensor-parallel sizes; one rank's slice is run.")
    ] = "1",
    dtype: Annotated[str, typer.Option("--dtype", help="With --model: fp32, bf16 or fp16; default: bf16, on a CPU fp32.")] = "",
    experts: Annotated[int, typer.Option("--experts", min=0, help="Experts of an MoE layer instead of the MLP; 0: none.")] = 0,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Experts that a token goes to.")] = 0,
    expert_ffn: Annotated[int, typer.Option("--expert-ffn", min=0, help="Inner width of an expert; default: the model's ffn.")] = 0,
    layers: Annotated[str, typer.Option("--layers", metavar="N,...", help="Layers of the stacks; default: 1,2,4,8.")] = "",
    level: Annotated[
        str, typer.Option("--level", metavar="NAME,...", help="layer, submodule, kernel, step.")
    ] = "layer,submodule,step",
    modes: Modes = "eager",
    libraries: Annotated[
        str, typer.Option("--libraries", metavar="NAME,...", help="Whose modules: windtunnel, hf (Hugging Face); default: both.")
    ] = "",
    device: Device = "auto",
    threads: Threads = None,
    warmup: Annotated[int | None, typer.Option("--warmup", min=0, help="Repetitions before the timed ones.")] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", min=1, help="Timed repetitions.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A quick try: 1 warm-up and 3 timed repetitions of 1 and 2 layers.")
    ] = False,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Tolerance of the closure check; default: 0.05 on a GPU, 0.25 on a CPU.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Start nothing new after this time (10m, 90s).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a file that an earlier run wrote.")] = False,
    timeline: Annotated[
        str | None, typer.Option("--timeline", metavar="FILE.json", help="Write memory by kind over a step of the deepest stack.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    from windtunnel.profile.device import open_device
    from windtunnel.profile.run import RunSettings, run

    if output is None:
        raise SpecError("-o", Nothing(), "the file to write", "Add -o profile.parquet.")
    writable(("-o", output), ("--timeline", timeline))
    settings = RunSettings(warmup=warmup, repeats=repeats, levels=words(level), modes=words(modes), tolerance=tolerance)
    if libraries:
        settings = replace(settings, libraries=words(libraries))
    if quick:
        settings = replace(settings, warmup=1 if warmup is None else warmup, repeats=repeats or 3, layers=(1, 2), attempts=1)
    if layers:
        settings = replace(settings, layers=numbers("--layers", layers))
    seconds = duration(budget)
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else PyTorch's profiler prints a line at every start and stop
    place = open_device(device)
    if threads is not None:
        place.torch.set_num_threads(threads)
    settings = settings.on(place.cuda)
    if model is None:
        cases = [_of_job(job, sets, on)]
    else:
        cases = of_model(
            model, sets, job, {"--seq": seq, "--micro-batch": micro_batch, "--tp": tp}, dtype or ("bf16" if place.cuda else "fp32")
        )
    cases = [replace(case, experts=experts, top_k=top_k, expert_ffn=expert_ffn) for case in cases]
    if device == "auto" and not place.cuda:
        refuse_cpu([case.model for case in cases])
    with stoppable(f"profiling on {place.name}") as report:
        outcome = run(cases, place, output, settings, resume=resume, budget=seconds, report=report)
    if timeline is not None:
        from dataclasses import asdict

        write_json({name: asdict(history) for name, history in outcome.timelines.items()}, timeline)
    _print_outcome(outcome, named=bool(libraries), cpu=not place.cuda)
    if not quiet:
        _show(output)


def _of_job(job: str | None, sets: list[str] | None, on: str | None) -> Case:
    from windtunnel.cli.shared.job import job_of, tell_source
    from windtunnel.profile.case import of_job

    if job is None:
        raise SpecError(
            "JOB",
            Nothing(),
            "a job, or --model NAME --seq N",
            "For example: windtunnel profile run --model llama3.2-1b --seq 2048 -o profile.parquet.",
        )
    loaded = job_of(job, sets, on)
    tell_source(loaded)
    return of_job(loaded.job)


def _print_outcome(outcome: Outcome, named: bool, cpu: bool) -> None:
    """Summary of the run, and the names of all unusable rows. `named`: the user named the libraries."""
    parts = [
        f"{outcome.measured} measured",
        f"{outcome.resumed} from before" if outcome.resumed else "",
        f"{outcome.left} left: type the same with --resume" if outcome.left else "",
        show_time(outcome.seconds),
    ]
    line = f"{outcome.path}: {outcome.rows:,} rows · " + " · ".join(part for part in parts if part)
    notes().print(line, markup=False, soft_wrap=True)
    absent = set() if named else {name for name, why in outcome.kept_out.items() if MISSING in why}
    print_list([f"{name}: {why}" for name, why in outcome.kept_out.items() if name not in absent], "kept out")
    if absent:
        notes().print("Without Hugging Face's modules; pip install 'windtunnel[hf]' adds them.", markup=False, highlight=False)
    print_list(
        [f"{name}: {why}" for name, why in outcome.open.items()], "open: measured, and not used, since its parts do not add up"
    )
    if outcome.open and cpu:
        notes().print(TIP, markup=False, highlight=False, soft_wrap=True)
    print_list(outcome.oom, "did not fit into memory")


def _show(path: str) -> None:
    """Seconds of one more layer, of its parts, and of a step, for each case of the file."""
    if not Path(path).exists():
        return
    from rich.console import Console
    from rich.table import Table

    from windtunnel.records import read, read_shape

    phases = ("forward", "backward", "optimizer")
    cases: dict[tuple[str, ...], dict[tuple[str, str], dict[str, str]]] = {}
    for row in read(path).rows():
        shape = read_shape(row["shape"] or "")
        if row["level"] == "kernel" or row["level"] == "layer" and "layers" in shape:
            continue
        sizes = f"{shape['micro_batch']} x {shape['seq']} tokens, tp {shape['tp']}, {row['dtype']}, {row['mode']}"
        layers = f" of {shape['layers']} layers" if "layers" in shape else ""
        one = cases.setdefault((row["model"] or "", sizes), {}).setdefault((row["op"] + layers, row["library"] or ""), {})
        one.setdefault(row["phase"], "" if row["seconds"] is None else show_time(row["seconds"]))
        one["status"] = row["status"] if row["status"] != "ok" else one.get("status", "")
    console = Console()
    for (model, sizes), sizes_of_model in cases.items():
        table = Table(box=None, pad_edge=False)
        for name in ("", "by", *phases, ""):
            table.add_column(name, justify="right" if name in phases else "left")
        for key, cells in sizes_of_model.items():
            table.add_row(*key, *(cells.get(name, "") for name in (*phases, "status")))
        console.print(f"{model}: {sizes}", highlight=False, markup=False)
        console.print(table)
