"""`windtunnel fit collectives`."""

from __future__ import annotations

from windtunnel.calibrate.options import CollectivesFitOptions
from windtunnel.cli.fit.common import show
from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit collectives                            stored and refitted constants of catalog/calibration/collectives.toml
  windtunnel fit collectives mine.csv --record r.json   on a table of your own (columns: docs/validate.md)
"""


@command_of(CollectivesFitOptions)
def command(asked: CollectivesFitOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.recipes import RECORDS
    from windtunnel.fit import collectives

    with show_spinner("fitting collectives"):
        outcome = collectives(asked.tables)
    show("collectives", outcome, asked.record, outputs)
    if asked.write:
        outcome.write(RECORDS / "collectives.json")
