"""`windtunnel fit training`."""

from __future__ import annotations

from pathlib import Path

from windtunnel.base.errors import UnknownName
from windtunnel.calibrate.options import TrainingFitCommandOptions
from windtunnel.cli.fit.common import only_catalogue
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit training                          every architecture: stored and fitted factors, errors with both
  windtunnel fit training --architecture hopper    one of them
  windtunnel fit training --write                  store them in catalog/calibration, and the records
"""


@command_of(TrainingFitCommandOptions, order=("tables", "architecture"))
def command(asked: TrainingFitCommandOptions, outputs: Outputs) -> None:
    architecture, record = asked.architecture, asked.record
    only_catalogue(asked.tables, asked.write)
    from windtunnel.calibrate.fit_sheet import fit_sheet
    from windtunnel.calibrate.recipes import RECORDS, fits
    from windtunnel.calibrate.training import fit_factors, rows_of, written_factors
    from windtunnel.cli.shared.progress import stoppable
    from windtunnel.compute import training

    architectures = tuple(fits().training)
    if architecture is not None and architecture not in architectures:
        raise UnknownName("--architecture", architecture, architectures)
    rows, fitted = rows_of(asked.tables), {}
    for name in architectures if architecture is None else (architecture,):
        with stoppable(f"fitting {name}") as report:
            fitted[name] = fit_factors(rows, name, report)
    outcomes = [outcome for _, outcome in fitted.values()]
    if record is not None and len(outcomes) == 1:
        outcomes[0].write(Path(record))
    outputs.show(fit_sheet("training factors", *outcomes), [outcome.as_dict() for outcome in outcomes])
    if asked.write:
        table = dict(training.factors()) | {name: factor for name, (factor, _) in fitted.items()}
        training.FILE.write_text(written_factors(training.FILE.read_text(encoding="utf-8"), table), encoding="utf-8")
        for name, (_, outcome) in fitted.items():
            outcome.write(RECORDS / f"training-{name}.json")
