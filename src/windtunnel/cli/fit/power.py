"""`windtunnel fit power`."""

from __future__ import annotations

from windtunnel.cli.fit.common import Record, Write, show
from windtunnel.cli.shared.common import show_spinner, writable
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel fit power                     print stored and fitted shares, and the errors with both
  windtunnel fit power --write             store them in catalog/calibration/power.toml, and the record
"""


@with_outputs
def command(write: Write = False, record: Record = None, *, outputs: Outputs) -> None:
    writable(("--record", record))
    from windtunnel.calibrate.power import fit_power, written_power
    from windtunnel.calibrate.recipes import RECORDS
    from windtunnel.compute.power import FILE

    with show_spinner("fitting power"):
        shared, own, outcome = fit_power()
    show("power", outcome, record, outputs)
    if write:
        FILE.write_text(written_power(FILE.read_text(encoding="utf-8"), shared, own), encoding="utf-8")
        outcome.write(RECORDS / "power.json")
