"""`windtunnel fit engines [FOLDER]`."""

from __future__ import annotations

import typer

from windtunnel.cli.fit.common import Systems, TablesFolder, Write
from windtunnel.cli.shared.common import Json, Quiet, writable, write_json

EXAMPLES = """\b
Examples:
  windtunnel fit engines                          on the tables of pip install 'windtunnel[measured]'; errors of rows held out
  windtunnel fit engines systems/data --write     store catalog/kernels/engines/*.json
"""


def command(
    folder: TablesFolder = None,
    system: Systems = None,
    write: Write = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json))
    from windtunnel.calibrate.engines.catalogue import SYSTEMS, error_lines, write_engines
    from windtunnel.cli.shared.progress import bar
    from windtunnel.fit import engines

    with bar("fitting") as shown:
        fits = engines(folder, systems=tuple(system or SYSTEMS), report=shown)
    if write:
        write_engines(fits)
    if json is not None:
        write_json([one.as_dict() for one in fits], json)
    if quiet or json == "-":
        return
    typer.echo(
        "| GPU | engine | held-out class | tokens | rows | median % | p90 % | bias % |\n|---|---|---|---|---:|---:|---:|---:|"
    )
    for line in error_lines(fits):
        typer.echo("| " + " | ".join(line) + " |")
