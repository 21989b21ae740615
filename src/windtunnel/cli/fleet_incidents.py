"""`windtunnel fleet incidents RUN`: what happened to a job, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  windtunnel fleet incidents out/fleet/tutorial
  windtunnel fleet incidents out/fleet/tutorial --json -
"""


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or its incidents.jsonl.")],
    json: Annotated[bool, typer.Option("--json", help="As lines of JSON.")] = False,
) -> None:
    import msgspec
    from rich.table import Table

    from windtunnel.base.errors import FileError
    from windtunnel.cli.common import notes
    from windtunnel.records.incidents import FILE, read_incidents

    incidents = read_incidents(run)
    if not incidents and not (run / FILE if run.is_dir() else run).exists() and not run.is_dir():
        raise FileError(str(run), "no such folder", "the folder of a run that `windtunnel fleet run --nodes` kept alive")
    if json:
        for one in incidents:
            typer.echo(msgspec.json.encode(one).decode())
        return
    table = Table("#", "what", "where", "evidence", "action", "down s", "lost steps", "outcome")
    for one in incidents:
        lost = "" if one.lost_steps is None else str(one.lost_steps)
        where = one.node or ""
        table.add_row(str(one.number), one.what, where, one.evidence, one.action, f"{one.seconds.down:.2f}", lost, one.outcome)
    console = notes()
    console.file = __import__("sys").stdout
    console.print(table)
    console.print(f"{len(incidents)} incidents, {sum(one.seconds.down for one in incidents):.1f} s in which nothing trained")
