"""`windtunnel fit power`."""

from __future__ import annotations

from windtunnel.cli.fit.common import Record, Write, show
from windtunnel.cli.shared.common import Json, Quiet, show_spinner, writable

EXAMPLES = """\b
Examples:
  windtunnel fit power                     print stored and fitted shares, and the errors with both
  windtunnel fit power --write             store them in catalog/calibration/power.toml, and the record
"""


def command(write: Write = False, record: Record = None, json: Json = None, quiet: Quiet = False) -> None:
    writable(("--record", record), ("--json", json))
    from windtunnel.calibrate.power import fit_power, written_power
    from windtunnel.calibrate.recipes import RECORDS
    from windtunnel.compute.power import FILE

    with show_spinner("fitting power"):
        shared, own, outcome = fit_power()
    show(outcome, record, json, quiet)
    if write:
        FILE.write_text(written_power(FILE.read_text(encoding="utf-8"), shared, own), encoding="utf-8")
        outcome.write(RECORDS / "power.json")
