"""`windtunnel fleet startup`."""

from __future__ import annotations

import typer

from windtunnel.cli.shared.common import write_json
from windtunnel.fleet.startup.layout import parse_mesh
from windtunnel.fleet.startup.start_costs import StartCostCommandOptions, start_costs_of


def command(asked: StartCostCommandOptions) -> None:
    starts, json = start_costs_of(asked), asked.json
    rows = starts["starts"]
    if json is not None:
        write_json(starts, json)
    if asked.quiet or json == "-":
        return
    typer.echo(f"{starts['ranks']} ranks: {parse_mesh(asked.mesh)}")
    for row in rows:
        seconds = "no law for its seconds" if row["seconds"] is None else f"{row['seconds']:.3g} s"
        told = f"{row['operations']:>12,} operations, {row['keys']:>12,} keys, {seconds}"
        words = f"  {row['path']:8} over {row['store']:12} {told}"
        if "measured" in row:
            found = row["measured"]
            words += f"; here {found['operations']:,} operations, {found['seconds']:.3g} s"
            if found["predicted_seconds"] is not None:
                words += f" (predicted {found['predicted_seconds']:.3g} s)"
        typer.echo(words)
    typer.echo("Seconds: fitted to gloo over loopback, with a core for every rank; nothing of a cluster's network is in them.")
    typer.echo(
        "Counted: every key of gloo's groups, whose ranks all connect to each other. `windtunnel predict` counts barriers and "
        "NCCL's ids of Megatron's groups (init_time_s, runtime.startup), and no connections."
    )
