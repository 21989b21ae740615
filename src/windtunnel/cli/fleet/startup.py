"""`windtunnel fleet startup`."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.cli.shared.common import Json, Quiet, writable, write_json
from windtunnel.fleet.startup.layout import parse_mesh
from windtunnel.fleet.startup.operation_counts import STORES
from windtunnel.fleet.startup.start_costs import start_costs

EXAMPLES = """\b
Examples:
  windtunnel fleet startup --mesh dp=8,pp=4,tp=2
  windtunnel fleet startup --mesh dp=192,pp=8,tp=8 --store hierarchical --bare
  windtunnel fleet startup --mesh dp=2,pp=2,tp=2 --measure --json -
"""


def command(
    mesh: Annotated[str, typer.Option("--mesh", metavar="AXIS=N,…", help="Ranks of each axis, the last one fastest.")],
    store: Annotated[str, typer.Option("--store", metavar="|".join(STORES), help="Where ranks meet.")] = "tcp",
    bare: Annotated[bool, typer.Option("--bare", help="Leave the default group without connections.")] = False,
    per_node: Annotated[int, typer.Option("--per-node", min=1, help="Ranks of a node, for the hierarchical store.")] = 8,
    measure: Annotated[bool, typer.Option("--measure", help="Also start it here, over gloo on loopback; needs torch.")] = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Store operations and seconds that starting a job's process groups takes, with torch's own path and with init_mesh."""
    writable(("--json", json))
    starts = start_costs(mesh, store, bare=bare, per_node=per_node, measured=measure)
    rows = starts["starts"]
    if json is not None:
        write_json(starts, json)
    if quiet or json == "-":
        return
    typer.echo(f"{starts['ranks']} ranks: {parse_mesh(mesh)}")
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
