"""`windtunnel profile sweep -o FILE.parquet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.base.units import show_time
from windtunnel.cli.profile.sizes import duration, numbers, of_model, refuse_cpu, words
from windtunnel.cli.shared.common import Device, Modes, On, Sets, Threads, stoppable, writable

if TYPE_CHECKING:
    from windtunnel.profile.kernels import KernelCase
    from windtunnel.profile.sweep import SweepOutcome

DRY_GPU = "h100-sxm-80gb"


def command(  # long: one option a line
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Catalogue name or job file: the kernels of its shard, and neighbours.")
    ] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE.parquet", help="Dataset to write.")] = None,
    classes: Annotated[str, typer.Option("--classes", metavar="NAME,...", help="Kernel classes; default: all of them.")] = "",
    models: Annotated[str, typer.Option("--models", metavar="NAME,...", help="Catalogue models whose shapes are measured.")] = "",
    sets: Sets = None,
    on: On = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME|FILE", help="In place of a JOB: this model, with --seq, --micro-batch.")
    ] = None,
    seq: Annotated[str, typer.Option("--seq", metavar="N", help="With --model: tokens of a sequence.")] = "",
    micro_batch: Annotated[str, typer.Option("--micro-batch", metavar="N", help="With --model: sequences of a micro batch.")] = "1",
    tp: Annotated[str, typer.Option("--tp", metavar="N,...", help="Tensor-parallel sizes.")] = "",
    tokens: Annotated[
        str, typer.Option("--tokens", metavar="FROM:TO|N,...", help="Tokens in a launch, doubling from FROM to TO.")
    ] = "",
    dtypes: Annotated[str, typer.Option("--dtypes", metavar="NAME,...", help="Number formats: bf16, fp16, fp8, fp32, tf32.")] = "",
    modes: Modes = "eager",
    device: Device = "auto",
    threads: Threads = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Stop after this long (8m, 90s, 2h) and keep what there is.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a file that an earlier sweep wrote.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and how long it takes; measure nothing.")] = False,
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="With --dry-run: the GPU to plan for.")] = DRY_GPU,
) -> None:
    if output is None and not dry_run:
        raise SpecError("-o", None, "the file to write", "Add -o kernels.parquet, or --dry-run to see the plan.")
    writable(("-o", output))
    seconds = duration(budget)
    there = None
    if not dry_run:
        from windtunnel.profile.device import open_device

        there = open_device(device)
        if threads is not None:
            there.torch.set_num_threads(threads)
    cuda = there.cuda if there is not None else device != "cpu"
    if job is not None or model is not None:
        for option, given, default in (("--models", models, ""), ("--tokens", tokens, ""), ("--modes", modes, "eager")):
            if given != default:
                raise SpecError(option, given, "nothing beside a JOB or --model, which says what is measured")
        cases = _of_share(
            job, sets, on, model, {"--seq": seq, "--micro-batch": micro_batch, "--tp": tp or "1"}, dtypes, words(classes), cuda
        )
    else:
        from windtunnel.profile.kernels import scope_of
        from windtunnel.profile.sweep import plan

        scope = scope_of(words(models), numbers("--tp", tp), numbers("--tokens", tokens), formats(dtypes), cuda)
        cases = plan(scope, words(classes), words(modes))
    if there is None:
        _print_plan(cases, gpu, seconds)
        return
    if device == "auto" and not there.cuda and job is not None:
        from windtunnel.cli.shared.job import job_of

        refuse_cpu([job_of(job, sets, on).job.model])
    from windtunnel.profile.api import sweep

    with stoppable(f"measuring {there.name}") as report:
        outcome = sweep(cases, str(output), device=there, resume=resume, budget=seconds, report=report)
    _print_outcome(outcome, str(output))


def _of_share(
    job: str | None,
    sets: list[str] | None,
    on: str | None,
    model: str | None,
    sizes: dict[str, str],
    dtypes: str,
    classes: tuple[str, ...],
    cuda: bool,
) -> list[KernelCase]:
    """The kernels of one GPU's share of a job, or of a model."""
    from windtunnel.cli.shared.job import job_of, tell_source
    from windtunnel.profile.job_cases import cases_of_job, job_plan

    formats(dtypes)
    if model is None:
        for option, values in (("--seq", sizes["--seq"]), ("--dtypes", dtypes)):
            if values:
                raise SpecError(
                    option, values, "nothing beside a JOB", "Change the job: --set plan.seq=512, --set runtime.precision=fp32."
                )
        loaded = job_of(job, sets, on)
        tell_source(loaded)
        return cases_of_job(loaded.job, cuda, classes)
    first = words(dtypes)[0] if dtypes else "bf16" if cuda else "fp32"
    cases: dict[str, KernelCase] = {}
    for share in of_model(model, sets, job, sizes, "bf16" if first == "fp8" else first):
        cases |= {case.key: case for case in job_plan(share, cuda, first, classes)}
    return list(cases.values())


def formats(text: str) -> tuple[str, ...]:
    """Number formats by name; UnknownName for one that is not measured."""
    from windtunnel.base.errors import UnknownName
    from windtunnel.profile.device import DTYPES

    for name in words(text):
        if name not in DTYPES:
            raise UnknownName("--dtypes", name, list(DTYPES))
    return words(text)


def _print_plan(cases: list[KernelCase], gpu: str, budget: float | None) -> None:
    """The plan by class, with estimated times, and its first cases."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from windtunnel.cli.profile.sweep_cost import kernel_seconds, sweep_seconds
    from windtunnel.profile.api import NAMING
    from windtunnel.profile.timing import Protocol
    from windtunnel.spec import load_gpu

    chosen = load_gpu(gpu)
    lasts, one = sweep_seconds(cases, chosen, Protocol()), kernel_seconds(cases, chosen)
    reached = int(np.searchsorted(np.cumsum(lasts), budget * (1 - NAMING))) if budget is not None else len(cases)
    console = Console()
    table = Table(box=None, pad_edge=False)
    for name in ("class", "cases", "estimated", "within the budget"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for op in dict.fromkeys(case.op for case in cases):
        of_class = np.array([case.op == op for case in cases])
        table.add_row(op, f"{of_class.sum():,}", show_time(float(lasts[of_class].sum())), f"{of_class[:reached].sum():,}")
    table.add_row("all", f"{len(cases):,}", show_time(float(lasts.sum())), f"{reached:,}", style="bold")
    console.print(f"Plan for {chosen.name}; times are estimates.", highlight=False)
    console.print(table)
    console.print("The first ones:", highlight=False)
    for case, seconds in list(zip(cases, one, strict=True))[:12]:
        size = " x ".join(str(value) for value in (case.m, case.n, case.k) if value is not None)
        what = " ".join(word for word in (case.op, case.name, case.phase, case.dtype, size) if word)
        console.print(f"  {what} · {show_time(float(seconds))}", highlight=False, markup=False)


def _print_outcome(outcome: SweepOutcome, path: str) -> None:
    from rich.console import Console

    console = Console()
    parts = [
        f"{outcome.measured:,} measured",
        f"{outcome.resumed:,} from before" if outcome.resumed else "",
        f"{outcome.oom:,} did not fit into memory" if outcome.oom else "",
        f"{outcome.left:,} left: type the same with --resume" if outcome.left else "",
    ]
    text = " · ".join(part for part in parts if part)
    console.print(
        f"{path}: {outcome.rows:,} rows · {text} · {show_time(outcome.seconds)}", highlight=False, markup=False, soft_wrap=True
    )
    for why, count in sorted(outcome.skipped.items(), key=lambda pair: -pair[1]):
        console.print(f"  skipped {count:,}: {why}", highlight=False, markup=False, soft_wrap=True)
