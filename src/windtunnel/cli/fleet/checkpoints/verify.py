"""`windtunnel fleet checkpoints verify FOLDER`: whether the files are those that were written."""

from __future__ import annotations

from pathlib import Path
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
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that a Checkpointer saves into.")],
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="This step only.")] = None,
    json: Json = None,
) -> None:
    import dataclasses

    from windtunnel.base.errors import SpecError
    from windtunnel.cli.fleet.checkpoints.ls import show_steps
    from windtunnel.fleet.checkpoint.folder import steps_in
    from windtunnel.fleet.checkpoint.manifest import hash_errors

    writable(("--json", json))
    found = [one for one in steps_in(folder) if one.state in ("committed", "damaged") and step in (None, one.step)]
    if not found:
        where, got = ("FOLDER", str(folder)) if step is None else ("--step", str(step))
        raise SpecError(where, got, "a committed step", f"Type `windtunnel fleet checkpoints ls {folder}`.")
    read = []
    for one in found:
        wrong = one.why if one.manifest is None or one.why else tuple(hash_errors(one.path, one.manifest))
        read.append(dataclasses.replace(one, state="damaged" if wrong else "committed", why=wrong))
    show_steps(read, json)
    if any(one.why for one in read):
        raise typer.Exit(1)
