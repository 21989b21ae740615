"""`windtunnel fit forward [FOLDER]`."""

from __future__ import annotations

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.fit.common import Systems, TablesFolder, Write
from windtunnel.cli.shared.common import Json, Quiet, writable, write_json

EXAMPLES = """\b
Examples:
  windtunnel fit forward                          on the tables of pip install 'windtunnel[measured]'; errors of rows held out
  windtunnel fit forward systems/data --write     store catalog/kernels/forward/curves.json
"""


def command(
    folder: TablesFolder = None,
    system: Systems = None,
    write: Write = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json))
    if write and system:
        raise SpecError("--write", ", ".join(system), "no --system", "The file holds all GPUs.")
    from windtunnel.calibrate.forward.fit import write_forward
    from windtunnel.cli.shared.progress import bar
    from windtunnel.fit import forward

    with bar("fitting") as shown:
        made = forward(folder, systems=tuple(system or ()), report=shown)
    if write:
        write_forward(made)
    if json is not None:
        write_json(made.as_dict(), json)
    if quiet or json == "-":
        return
    typer.echo("| GPU | held-out class | source | rows | median % | p90 % | bias % |\n|---|---|---|---:|---:|---:|---:|")
    for line in made.lines:
        typer.echo("| " + " | ".join(map(str, line)) + " |")
