"""`windtunnel calibrate RUN... --job JOB`."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from windtunnel.base.arrays import Floats
from windtunnel.cli.shared.common import Json, On, Sets, notes, print_list, show_spinner, writable, write, write_json
from windtunnel.cli.shared.job import job_of, tell_source
from windtunnel.runs.factors import Factor

EXAMPLES = """\b
Examples:
  windtunnel calibrate last-night --job job.toml -o calibration.toml
  windtunnel predict job.toml --calibration calibration.toml
"""


def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or files that runs are read from.")],
    job: Annotated[str, typer.Option("--job", metavar="JOB", help="The job that they are runs of.")],
    sets: Sets = None,
    on: On = None,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="Where the calibration goes (TOML).")] = None,
    json: Json = None,
) -> None:
    from pathlib import Path

    from windtunnel.cli.runs.show import run_of
    from windtunnel.records.run_file import is_run
    from windtunnel.runs.calibrate import calibrate
    from windtunnel.spec.loading.toml import toml_lines

    writable(("--out", out), ("--json", json))
    loaded = job_of(job, sets, on)
    tell_source(loaded)
    sources = [[name] for name in runs] if all(is_run(Path(name)) for name in runs) else [runs]
    read = [run_of(files) for files in sources]
    print_list([line for _, broken in read for line in broken], "could not be read")
    with show_spinner("fitting"):
        result = calibrate([run for run, _ in read], loaded.job)
    calibration = result.fit.calibration
    if json is not None:
        write_json(result.as_dict(), json)
    if out is not None:
        lines = toml_lines(calibration.model_dump(mode="json", exclude_none=True))
        write("\n".join(lines).lstrip() + "\n", out, "--out")
    if json != "-":
        _show(result.fit.factors.factors, result.before, result.after, result.steps_fitted)
        if out is not None:
            notes().print(f"Next: windtunnel predict {job} --calibration {out}", markup=False)


def _show(factors: tuple[Factor, ...], before: Floats, after: Floats, steps: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("factor", "measured / predicted", "error", "ms a step", "samples"):
        table.add_column(column, justify="left" if column == "factor" else "right")
    for factor in factors:
        error = "-" if factor.error != factor.error else f"±{factor.error:.3f}"
        table.add_row(factor.path, f"{factor.value:.3f}", error, f"{factor.expected_s * 1e3:,.3g}", str(factor.samples))
    console.print(table)
    if len(before):
        console.print(
            f"Fitted to {steps} steps. Prediction of the {len(before)} steps that were left out: "
            f"{np.mean(before):+.1%} before, {np.mean(after):+.1%} after."
        )
    else:
        console.print("One step only: no step was left out to judge the fit on.")
