"""`windtunnel calibrate RUN... --job JOB`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.cli.shared.common import names_of, notes, print_list, show_spinner, write
from windtunnel.cli.shared.job import job_of, tell_source
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.runs.options import CalibrateCommandOptions


@command_of(CalibrateCommandOptions)
def command(asked: CalibrateCommandOptions, outputs: Outputs) -> None:
    from windtunnel.api.measured import server_results
    from windtunnel.cli.runs import run_of
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
    from windtunnel.runs.calibration_sheet import calibration_sheet

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
