"""`windtunnel fleet checkpoints rm FOLDER STEP...`: deletes steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  windtunnel fleet checkpoints rm checkpoints 1000 2000
  windtunnel fleet checkpoints rm checkpoints --torn
"""


def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that a Checkpointer saves into.")],
    steps: Annotated[list[int] | None, typer.Argument(metavar="STEP...", help="Steps to delete, in any state.")] = None,
    torn: Annotated[bool, typer.Option("--torn", help="Delete uncommitted steps. No job may be saving.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Delete even the newest two committed steps.")] = False,
) -> None:
    from windtunnel.base.errors import SpecError
    from windtunnel.fleet.checkpoint.folder import steps_in
    from windtunnel.fleet.checkpoint.retention import SAFE, delete

    found = steps_in(folder)
    newest = [one.step for one in found if one.state == "committed"][:SAFE]
    wanted = [one for one in found if one.step in (steps or ()) or torn and one.state == "torn"]
    missing = sorted(set(steps or ()) - {one.step for one in wanted})
    if missing or not (steps or torn):
        raise SpecError(
            "STEP", missing or "nothing", "steps of the folder, or --torn", f"Type `windtunnel fleet checkpoints ls {folder}`."
        )
    kept = [one.step for one in wanted if one.state == "committed" and one.step in newest]
    if kept and not force:
        raise SpecError("STEP", kept, "steps older than the newest two committed", "Add --force to delete them all the same.")
    for one in wanted:
        delete(one.path)
        typer.echo(f"deleted {one.path.name}")
