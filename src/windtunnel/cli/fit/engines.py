"""`windtunnel fit engines [FOLDER]`."""

from __future__ import annotations

import typer

from windtunnel.calibrate.options import MeasuredFitCommandOptions
from windtunnel.cli.shared.common import write_json
from windtunnel.cli.shared.options import bare_command_of

EXAMPLES = """\b
Examples:
  windtunnel fit engines                          on the tables of pip install 'windtunnel[measured]'; errors of rows held out
  windtunnel fit engines systems/data --write     store catalog/kernels/engines/*.json
"""


@bare_command_of(MeasuredFitCommandOptions)
def command(asked: MeasuredFitCommandOptions) -> None:
    from windtunnel.calibrate.engines.catalogue import error_lines, write_engines
    from windtunnel.cli.shared.progress import bar
    from windtunnel.fit import engines

    with bar("fitting") as shown:
        fits = engines(asked.folder, systems=asked.systems, report=shown)
    if asked.write:
        write_engines(fits)
    if asked.json is not None:
        write_json([one.as_dict() for one in fits], asked.json)
    if asked.quiet or asked.json == "-":
        return
    typer.echo(
        "| GPU | engine | held-out class | tokens | rows | median % | p90 % | bias % |\n|---|---|---|---|---:|---:|---:|---:|"
    )
    for line in error_lines(fits):
        typer.echo("| " + " | ".join(line) + " |")
