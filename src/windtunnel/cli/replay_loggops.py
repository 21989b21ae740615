"""`windtunnel replay SCHEDULE --loggops …`: a GOAL schedule as LogGOPSim runs it."""

from __future__ import annotations

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import told, write_json

MOST_HOSTS = 16
"""Ranks up to which each one's time is printed, as LogGOPSim does."""


def replay_loggops(files: list[str], parameters: str, json: str | None, quiet: bool) -> None:
    """Prints ns of each rank, or of the slowest. SpecError for several files and wrong parameters."""
    from windtunnel.replay.loggops import replay_loggops as run

    if len(files) != 1:
        raise SpecError("TRACE", f"{len(files)} files", "one GOAL schedule")
    result = run(files[0], parameters)
    stuck = (
        f"{result.unfinished} operations never end: {result.unexpected} messages and {result.unmatched} receives meet nobody;"
        " LogGOPSim prints no times here",
    )
    if json is not None:
        write_json(result.as_dict(), json)
    told(result.broken, "broken")
    told(stuck if result.is_stuck else (), "never ended")
    if quiet or json == "-":
        return
    if len(result.hosts) <= MOST_HOSTS:
        for number, time in enumerate(result.hosts):
            typer.echo(f"Host {number}: {time}")
        return
    slowest = result.hosts.index(result.end)
    typer.echo(f"Maximum finishing time at host {slowest}: {result.end} ({result.end / 1e9:g} s)")
