"""`windtunnel fleet checkpoints verify FOLDER`: whether the files are those that were written."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.shared.common import Json, writable

EXAMPLES = """\b
Examples:
  windtunnel fleet checkpoints verify checkpoints
  windtunnel fleet checkpoints verify checkpoints --step 2000

The exit code is 1 if a committed step is damaged.
"""


def command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder or a URL that a Checkpointer saves into.")],
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="This step only.")] = None,
    json: Json = None,
) -> None:
    from windtunnel.cli.fleet.checkpoints.ls import show_steps
    from windtunnel.fleet.api import verify_steps

    writable(("--json", json))
    read = verify_steps(folder, step)
    show_steps(read, json)
    if any(one.why for one in read):
        raise typer.Exit(1)
