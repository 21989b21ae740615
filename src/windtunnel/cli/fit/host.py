"""`windtunnel fit host`."""

from __future__ import annotations

from windtunnel.calibrate.options import TablesFitCommandOptions
from windtunnel.cli.fit.common import only_catalogue, show
from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs

EXAMPLES = """\b
Examples:
  windtunnel fit host                      print stored and fitted costs, and the errors with both
  windtunnel fit host --write              store them in catalog/frameworks, and the record
"""


@command_of(TablesFitCommandOptions)
def command(asked: TablesFitCommandOptions, outputs: Outputs) -> None:
    only_catalogue(asked.tables, asked.write)
    from windtunnel.calibrate.recipes import RECORDS, fits
    from windtunnel.calibrate.training import fit_host, rows_of, written_host
    from windtunnel.spec.loading.catalog import ROOT

    with show_spinner("fitting host costs"):
        values, outcome = fit_host(rows_of(asked.tables))
    show("host costs", outcome, asked.record, outputs)
    if asked.write:
        path = ROOT / "frameworks" / f"{fits().host.framework}.toml"
        path.write_text(written_host(path.read_text(encoding="utf-8"), values), encoding="utf-8")
        outcome.write(RECORDS / "host.json")
