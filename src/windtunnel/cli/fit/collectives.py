"""`windtunnel fit collectives`."""

from __future__ import annotations

from windtunnel.calibrate.options import CollectivesFitCommandOptions
from windtunnel.cli.fit.common import show
from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit collectives                            stored and refitted constants of catalog/calibration/collectives.toml
  windtunnel fit collectives mine.csv --record r.json   on a table of your own (columns: docs/validate.md)
"""


def _run(asked: CollectivesFitCommandOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.recipes import RECORDS
    from windtunnel.fit import collectives

    with show_spinner("fitting collectives"):
        outcome = collectives(asked.tables)
    show("collectives", outcome, asked.record, outputs)
    if asked.write:
        outcome.write(RECORDS / "collectives.json")


command = command_of(CollectivesFitCommandOptions, _run)
