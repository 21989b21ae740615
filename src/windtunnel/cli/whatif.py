"""`windtunnel whatif RUN... --change CHANGE`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import Sets, print_list, show_spinner
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel whatif last-night --change no-stragglers --change no-host-gaps --change scale:attention=0.5
  windtunnel whatif last-night --from a100-sxm-80gb --change gpu=h100-sxm-80gb --change fp8
  windtunnel whatif last-night --job llama3-8b-8xh100 --change dp=16 --change pp=2
"""


@with_outputs
def command(
    files: Annotated[list[str], typer.Argument(metavar="RUN|FILE...", help="A run's folder, or the traces of its ranks.")],
    change: Annotated[
        list[str],
        typer.Option(
            "--change",
            metavar="CHANGE",
            help="scale:CLASS=F, scale:/PATTERN/=F, remove:CLASS, remove:/PATTERN/, fp8, gpu=NAME, network=CLUSTER, "
            "cluster=CLUSTER (both), no-host-gaps, no-stragglers, or dp=, pp=, tp=, cp=, ep=N; repeatable, each is answered alone.",
        ),
    ],
    source: Annotated[
        str | None, typer.Option("--from", metavar="GPU", help="The GPU of the trace, for gpu= and fp8; default: --job's.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="CLUSTER", help="The cluster of the trace, for network= and cluster=; default: --job's."),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB", help="The job of the run: its shapes and its machine; dp=, pp= and such need it."),
    ] = None,
    sets: Sets = None,
    step: Annotated[int | None, typer.Option("--step", help="One step of the run; default: all that was traced.")] = None,
    *,
    outputs: Outputs,
) -> None:
    from windtunnel.cli.runs.show import run_of
    from windtunnel.cli.shared.job import job_of
    from windtunnel.runs.whatif import TracedMachine, what_if
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    if not change:
        raise SpecError("--change", "nothing", "one change or more")
    of_run = None if job is None else job_of(job, sets).job
    machine = TracedMachine(None if source is None else load_gpu(source), None if on is None else load_cluster(on), of_run)
    run, broken = run_of(files)
    with show_spinner("replaying"):
        rows = what_if(run, change, machine, step)
    print_list(broken, "could not be read")
    from windtunnel.runs.whatif_sheet import whatif_sheet

    outputs.show(whatif_sheet(rows, broken), [row.as_dict() for row in rows])
