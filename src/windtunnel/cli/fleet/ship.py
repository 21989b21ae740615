"""`windtunnel fleet ship FOLDER --collector URL`: sends what the ranks of this node write to the collector."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where the ranks of this node write their rings.")],
    collector: Annotated[str, typer.Option("--collector", "-c", metavar="URL", help="Address that the collector prints.")],
    interval: Annotated[
        float, typer.Option("--interval", min=0, help="Seconds between batches; 0: by the job's size, 1 to 10.")
    ] = 0.0,
    detail: Annotated[
        str, typer.Option("--detail", help="full: every row; summary: counts and times by step and section.")
    ] = "full",
    kib_per_second: Annotated[
        float,
        typer.Option("--kib-per-second", min=0, help="This node's limit; beyond it steps are sent as summaries. 0: no limit."),
    ] = 0.0,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="Shared secret; default: $WINDTUNNEL_FLEET_TOKEN.")
    ] = None,
    secrets: Annotated[
        str | None,
        typer.Option(
            "--secrets",
            metavar="DIR",
            help="For https: the collector's folder or secrets.json; default: $WINDTUNNEL_FLEET_SECRETS.",
        ),
    ] = None,
) -> None:
    from windtunnel.fleet.ship import ShipPolicy, ship
    from windtunnel.fleet.wire.secrets import token_of

    policy = ShipPolicy(interval=interval, detail=detail, bytes_per_second=kib_per_second * 1024)
    done = ship(Path(folder), collector, policy, token_of(token_file), secrets)
    typer.echo(
        f"sent {done.rows} rows in {done.batches} batches of {done.bytes} bytes; {done.lost} lost, {done.reduced} as summaries",
        err=True,
    )
