"""`windtunnel replay SCHEDULE --loggops …`: a GOAL schedule as LogGOPSim runs it."""

from __future__ import annotations

from pathlib import Path

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import print_list, write_json

MOST_HOSTS = 16
"""Ranks up to which each one's time is printed, as LogGOPSim does."""


def replay_loggops(files: list[str], parameters: str, json: str | None, quiet: bool) -> None:
    """Prints ns of each rank, or of the slowest. SpecError for several files and wrong parameters."""
    from windtunnel.formats.traces.goal import read_schedule
    from windtunnel.replay.loggops import parse_loggops, run_loggops

    if len(files) != 1:
        raise SpecError("TRACE", f"{len(files)} files", "one GOAL schedule")
    model = parse_loggops(parameters)
    schedule = read_schedule(Path(files[0]))
    result = run_loggops(schedule, model)
    stuck = (
        f"{result.unfinished} operations never end: {result.unexpected} messages and {result.unmatched} receives meet nobody;"
        " LogGOPSim prints no times here",
    )
    if json is not None:
        table = {
            "schema": "windtunnel.loggops/1", "loggops": {name: getattr(model, name) for name in ("L", "o", "g", "G", "O", "S")},
            "host_ns": list(result.hosts), "max_ns": result.end, "events": result.events, "finished": not result.is_stuck,
            "unexpected": result.unexpected, "unmatched": result.unmatched, "broken": schedule.broken,
        }  # fmt: skip
        write_json(table, json)
    print_list(schedule.broken, "broken")
    print_list(stuck if result.is_stuck else (), "never ended")
    if quiet or json == "-":
        return
    if len(result.hosts) <= MOST_HOSTS:
        for number, time in enumerate(result.hosts):
            typer.echo(f"Host {number}: {time}")
        return
    slowest = result.hosts.index(result.end)
    typer.echo(f"Maximum finishing time at host {slowest}: {result.end} ({result.end / 1e9:g} s)")
