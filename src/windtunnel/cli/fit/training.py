"""`windtunnel fit training`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windtunnel.base.errors import UnknownName
from windtunnel.cli.fit.common import Record, Tables, Write, only_catalogue
from windtunnel.cli.shared.common import writable
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel fit training                          every architecture: stored and fitted factors, errors with both
  windtunnel fit training --architecture hopper    one of them
  windtunnel fit training --write                  store them in catalog/calibration, and the records
"""


@with_outputs
def command(
    tables: Tables = None,
    architecture: Annotated[str | None, typer.Option("--architecture", metavar="NAME", help="Only this architecture.")] = None,
    write: Write = False,
    record: Record = None,
    *,
    outputs: Outputs,
) -> None:
    only_catalogue(tables, write)
    writable(("--record", record))
    from windtunnel.calibrate.fit_sheet import fit_sheet
    from windtunnel.calibrate.recipes import RECORDS, fits
    from windtunnel.calibrate.training import fit_factors, rows_of, written_factors
    from windtunnel.cli.shared.progress import stoppable
    from windtunnel.compute import training

    architectures = tuple(fits().training)
    if architecture is not None and architecture not in architectures:
        raise UnknownName("--architecture", architecture, architectures)
    rows, fitted = rows_of(tables or ()), {}
    for name in architectures if architecture is None else (architecture,):
        with stoppable(f"fitting {name}") as report:
            fitted[name] = fit_factors(rows, name, report)
    outcomes = [outcome for _, outcome in fitted.values()]
    if record is not None and len(outcomes) == 1:
        outcomes[0].write(Path(record))
    outputs.show(fit_sheet("training factors", *outcomes), [outcome.as_dict() for outcome in outcomes])
    if write:
        table = dict(training.factors()) | {name: factor for name, (factor, _) in fitted.items()}
        training.FILE.write_text(written_factors(training.FILE.read_text(encoding="utf-8"), table), encoding="utf-8")
        for name, (_, outcome) in fitted.items():
            outcome.write(RECORDS / f"training-{name}.json")
