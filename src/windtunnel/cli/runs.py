"""`windtunnel runs`: the group of verbs for measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.cli.shared.common import notes, print_list, show_spinner
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.cli.shared.verbs import Verbs

if TYPE_CHECKING:
    from windtunnel.records.run import Run

VERBS: Verbs = {
    "show": ("runs:show", "What a run's steps went to by rank and stream, its calls, and which rank waits for whom."),
}


@with_outputs
def show(
    files: Annotated[list[str], typer.Argument(metavar="RUN|FILE...", help="A run's folder, or the files that it is read from.")],
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay", metavar="OP", help="Print a script that times this operator as the trace has it, and nothing else."
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="ID", help="The GPU of traces that don't name one of the catalogue.")
    ] = None,
    form: Annotated[str | None, typer.Option("--as", metavar="FORMAT", help="The format, if the content does not show it.")] = None,
    *,
    outputs: Outputs,
) -> None:
    if replay is not None:
        from windtunnel.runs.replay_script import write_replay

        print(write_replay(files, replay), end="")
        return
    from windtunnel.runs.operators import operators_of_source
    from windtunnel.runs.report import as_json, report_of
    from windtunnel.runs.report_sheet import run_sheet

    run, broken = run_of(files, form)
    with show_spinner("breaking it down"):
        report = report_of(run, operators_of_source(files, run, gpu))
    outputs.show(run_sheet(report, broken), as_json(report))
    if outputs.json != "-" and not outputs.quiet:
        if report.steps and report.waits.calls:
            for note in report.notes:
                notes().print(note, markup=False)
        print_list(broken, "could not be read")


def run_of(files: Sequence[str], form: str | None = None) -> tuple[Run, tuple[str, ...]]:
    """A run and what of it could not be read, with a bar. SpecError for files that hold something else."""
    from windtunnel.runs.sources import read_run_of

    with bar("reading the run") as shown:
        return read_run_of(files, form, shown)
