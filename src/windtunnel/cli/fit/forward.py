"""`windtunnel fit forward [FOLDER]`."""

from __future__ import annotations

import typer

from windtunnel.base.errors import SpecError
from windtunnel.calibrate.options import MeasuredFitCommandOptions
from windtunnel.cli.shared.common import write_json
from windtunnel.cli.shared.options import bare_command_of

EXAMPLES = """\b
Examples:
  windtunnel fit forward                          on the tables of pip install 'windtunnel[measured]'; errors of rows held out
  windtunnel fit forward systems/data --write     store catalog/kernels/forward/curves.json
"""


@bare_command_of(MeasuredFitCommandOptions)
def command(asked: MeasuredFitCommandOptions) -> None:
    if asked.write and asked.systems:
        raise SpecError("--write", ", ".join(asked.systems), "no --system", "The file holds all GPUs.")
    from windtunnel.calibrate.forward.fit import write_forward
    from windtunnel.cli.shared.progress import bar
    from windtunnel.fit import forward

    with bar("fitting") as shown:
        made = forward(asked.folder, systems=asked.systems, report=shown)
    if asked.write:
        write_forward(made)
    if asked.json is not None:
        write_json(made.as_dict(), asked.json)
    if asked.quiet or asked.json == "-":
        return
    typer.echo("| GPU | held-out class | source | rows | median % | p90 % | bias % |\n|---|---|---|---:|---:|---:|---:|")
    for line in made.lines:
        typer.echo("| " + " | ".join(map(str, line)) + " |")
