"""`windtunnel fleet checkpoints rm FOLDER STEP...`: deletes steps."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  windtunnel fleet checkpoints rm checkpoints 1000 2000
  windtunnel fleet checkpoints rm checkpoints --torn
"""


def command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder or a URL that a Checkpointer saves into.")],
    steps: Annotated[list[int] | None, typer.Argument(metavar="STEP...", help="Steps to delete, in any state.")] = None,
    torn: Annotated[bool, typer.Option("--torn", help="Delete uncommitted steps. No job may be saving.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Delete even the newest two committed steps.")] = False,
) -> None:
    from windtunnel.fleet.api import delete_steps

    for name in delete_steps(folder, steps or (), torn=torn, force=force):
        typer.echo(f"deleted {name}")
