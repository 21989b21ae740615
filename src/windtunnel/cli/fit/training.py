"""`windtunnel fit training`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.base.errors import UnknownName
from windtunnel.cli.fit.common import Record, Tables, Write, only_catalogue, show
from windtunnel.cli.shared.common import Json, Quiet, writable, write_json

EXAMPLES = """\b
Examples:
  windtunnel fit training                          every architecture: stored and fitted factors, errors with both
  windtunnel fit training --architecture hopper    one of them
  windtunnel fit training --write                  store them in catalog/calibration, and the records
"""


def command(
    tables: Tables = None,
    architecture: Annotated[str | None, typer.Option("--architecture", metavar="NAME", help="Only this architecture.")] = None,
    write: Write = False,
    record: Record = None,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    only_catalogue(tables, write)
    writable(("--record", record), ("--json", json))
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
    for _, outcome in fitted.values():
        show(outcome, record if len(fitted) == 1 else None, None, quiet or json == "-")
    if json is not None:
        write_json([outcome.as_dict() for _, outcome in fitted.values()], json)
    if write:
        table = dict(training.factors()) | {name: factor for name, (factor, _) in fitted.items()}
        training.FILE.write_text(written_factors(training.FILE.read_text(encoding="utf-8"), table), encoding="utf-8")
        for name, (_, outcome) in fitted.items():
            outcome.write(RECORDS / f"training-{name}.json")
