"""`windtunnel runs show`: the breakdown of a measured run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from windtunnel.cli.shared.common import notes, print_list, show_spinner
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import bar
from windtunnel.records.run import Run
from windtunnel.runs.operators import operators_of_source
from windtunnel.runs.report import as_json, report_of
from windtunnel.runs.sources import read_run_of

EXAMPLES = """\b
Examples:
  windtunnel runs show trace-rank*.json.gz
  windtunnel runs show last-night --json breakdown.json
  windtunnel runs show trace-rank0.json.gz --replay aten::mm > mm.py
"""


@with_outputs
def command(
    files: Annotated[list[str], typer.Argument(metavar="RUN|FILE...", help="A run's folder, or the files that it is read from.")],
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay", metavar="OP", help="Print a script that times this operator as the trace has it, and nothing else."
        ),
    ] = None,
    form: Annotated[str | None, typer.Option("--as", metavar="FORMAT", help="The format, if the content does not show it.")] = None,
    *,
    outputs: Outputs,
) -> None:
    if replay is not None:
        from windtunnel.runs.replay_script import write_replay

        print(write_replay(files, replay), end="")
        return
    run, broken = run_of(files, form)
    with show_spinner("breaking it down"):
        report = report_of(run, operators_of_source(files, run))
    from windtunnel.runs.report_sheet import run_sheet

    outputs.show(run_sheet(report, broken), as_json(report))
    if outputs.json != "-" and not outputs.quiet:
        if report.steps and report.waits.calls:
            for note in report.notes:
                notes().print(note, markup=False)
        print_list(broken, "could not be read")


def run_of(files: Sequence[str], form: str | None = None) -> tuple[Run, tuple[str, ...]]:
    """A run and what of it could not be read, with a bar. SpecError for files that hold something else."""
    with bar("reading the run") as shown:
        return read_run_of(files, form, shown)
