"""`windtunnel fit host`."""

from __future__ import annotations

from windtunnel.cli.fit.common import Record, Tables, Write, only_catalogue, show
from windtunnel.cli.shared.common import show_spinner, writable
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel fit host                      print stored and fitted costs, and the errors with both
  windtunnel fit host --write              store them in catalog/frameworks, and the record
"""


@with_outputs
def command(tables: Tables = None, write: Write = False, record: Record = None, *, outputs: Outputs) -> None:
    only_catalogue(tables, write)
    writable(("--record", record))
    from windtunnel.calibrate.recipes import RECORDS, fits
    from windtunnel.calibrate.training import fit_host, rows_of, written_host
    from windtunnel.spec.loading.catalog import ROOT

    with show_spinner("fitting host costs"):
        values, outcome = fit_host(rows_of(tables or ()))
    show("host costs", outcome, record, outputs)
    if write:
        path = ROOT / "frameworks" / f"{fits().host.framework}.toml"
        path.write_text(written_host(path.read_text(encoding="utf-8"), values), encoding="utf-8")
        outcome.write(RECORDS / "host.json")
