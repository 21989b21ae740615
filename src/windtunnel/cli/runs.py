"""Verbs of measured runs: the group `windtunnel runs`, `windtunnel whatif RUN... --change CHANGE`, and `windtunnel calibrate RUN...
--job JOB`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import bar, names_of, notes, print_list, show_spinner, write
from windtunnel.cli.shared.job import job_of, tell_source
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.runs.options import CalibrateCommandOptions, WhatIfCommandOptions

if TYPE_CHECKING:
    from windtunnel.records.run import Run


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


def _of_capture(names: list[str], asked: WhatIfCommandOptions, outputs: Outputs) -> None:
    from windtunnel.api.capture import read_capture
    from windtunnel.api.captured_whatif import what_if_captured
    from windtunnel.runs.whatif_sheet import whatif_sheet

    if asked.gpu is not None or asked.job is not None or asked.step is not None:
        raise SpecError("RUN", names[0], "a run beside --from, --job and --step", "Of a capture the machine is known.")
    with show_spinner("replaying"):
        captured = read_capture(names, None if asked.cluster is None else str(asked.cluster))
        rows = what_if_captured(captured, asked.changes)
    outputs.show(whatif_sheet(rows, captured=True), [row.as_dict() for row in rows])


def whatif(asked: WhatIfCommandOptions, outputs: Outputs) -> None:
    from windtunnel.records.capture_file import captured_files
    from windtunnel.runs.whatif import TracedMachine, what_if
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    if captured_files(names := names_of(asked.run)):
        _of_capture(names, asked, outputs)
        return
    if asked.sets and asked.job is None:
        raise SpecError("--set", ", ".join(asked.sets), "--job JOB beside it, whose fields it changes")
    of_run = None if asked.job is None else job_of(str(asked.job), list(asked.sets)).job
    source, on = asked.gpu, asked.cluster
    machine = TracedMachine(
        None if source is None else load_gpu(str(source)), None if on is None else load_cluster(str(on)), of_run
    )
    run, broken = run_of(names_of(asked.run))
    with show_spinner("replaying"):
        rows = what_if(run, asked.changes, machine, asked.step)
    print_list(broken, "could not be read")
    from windtunnel.runs.whatif_sheet import whatif_sheet

    outputs.show(whatif_sheet(rows, broken), [row.as_dict() for row in rows])


def calibrate(asked: CalibrateCommandOptions, outputs: Outputs) -> None:
    from windtunnel.api.measured import server_results
    from windtunnel.records.run_file import is_run
    from windtunnel.runs.calibrate import calibrate
    from windtunnel.spec.loading.files import toml_lines

    runs, out = names_of(asked.runs), asked.out
    if (results := server_results(runs)) is not None:
        return _calibrate_server(results, asked, outputs)
    loaded = job_of(str(asked.job), list(asked.sets), asked.on)
    tell_source(loaded)
    sources = [[name] for name in runs] if all(is_run(Path(name)) for name in runs) else [runs]
    read = [run_of(files) for files in sources]
    print_list([line for _, broken in read for line in broken], "could not be read")
    with show_spinner("fitting"):
        result = calibrate([run for run, _ in read], loaded.job)
    calibration = result.fit.calibration
    if out is not None:
        lines = toml_lines(calibration.model_dump(mode="json", exclude_none=True))
        write("\n".join(lines).lstrip() + "\n", out, "--out")
    from windtunnel.runs.calibrate import calibration_sheet

    outputs.show(calibration_sheet(result), result.as_dict)
    if out is not None and outputs.json != "-":
        notes().print(f"Next: windtunnel predict {asked.job} --calibration {out}", markup=False)


def _calibrate_server(results: Sequence[Path], asked: CalibrateCommandOptions, outputs: Outputs) -> None:
    """Host and client time of a server by what its benchmark printed."""
    from windtunnel.api.serving import answer_server_calibration
    from windtunnel.serving.calibrated import plain_calibration
    from windtunnel.serving.calibrated_sheet import calibrated_sheet
    from windtunnel.spec.loading.files import toml_lines

    with show_spinner("fitting"):
        result = answer_server_calibration(results, str(asked.job), asked.on, list(asked.sets))
    if asked.out is not None:
        write("\n".join(toml_lines(plain_calibration(result.calibration))).lstrip() + "\n", asked.out, "--out")
    outputs.show(calibrated_sheet(result), result.as_dict)
    if asked.out is not None and outputs.json != "-":
        notes().print(f"Next: windtunnel serve-predict {asked.job} --on {asked.on} --calibration {asked.out}", markup=False)
