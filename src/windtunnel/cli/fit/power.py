"""`windtunnel fit power`."""

from __future__ import annotations

from windtunnel.calibrate.options import PowerFitOptions
from windtunnel.cli.fit.common import show
from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit power                     print stored and fitted shares, and the errors with both
  windtunnel fit power --write             store them in catalog/calibration/power.toml, and the record
"""


@command_of(PowerFitOptions)
def command(asked: PowerFitOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.power import fit_power, written_power
    from windtunnel.calibrate.recipes import RECORDS
    from windtunnel.compute.power import FILE

    with show_spinner("fitting power"):
        shared, own, outcome = fit_power()
    show("power", outcome, asked.record, outputs)
    if asked.write:
        FILE.write_text(written_power(FILE.read_text(encoding="utf-8"), shared, own), encoding="utf-8")
        outcome.write(RECORDS / "power.json")
