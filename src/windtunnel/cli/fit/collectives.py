"""`windtunnel fit collectives`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.fit.common import Record, Tables, show
from windtunnel.cli.shared.common import show_spinner, writable
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel fit collectives                            stored and refitted constants of catalog/calibration/collectives.toml
  windtunnel fit collectives mine.csv --record r.json   on a table of your own (columns: docs/validate.md)
"""


@with_outputs
def command(
    tables: Tables = None,
    store: Annotated[
        bool,
        typer.Option("--write", help="Store the record in the catalogue; constants are in its collectives.toml."),
    ] = False,
    record: Record = None,
    *,
    outputs: Outputs,
) -> None:
    writable(("--record", record))
    from windtunnel.calibrate.recipes import RECORDS
    from windtunnel.fit import collectives

    with show_spinner("fitting collectives"):
        outcome = collectives(tables or ())
    show("collectives", outcome, record, outputs)
    if store:
        outcome.write(RECORDS / "collectives.json")
