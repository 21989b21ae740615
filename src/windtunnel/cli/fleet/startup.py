"""`windtunnel fleet startup`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.cli.shared.common import Json, Quiet, writable, write_json
from windtunnel.fleet.startup.layout import RankLayout, parse_mesh
from windtunnel.fleet.startup.operation_counts import (
    STORES,
    StartCounts,
    World,
    connections,
    memberships,
    ordered_counts,
    torch_counts,
)

EXAMPLES = """\b
Examples:
  windtunnel fleet startup --mesh dp=8,pp=4,tp=2
  windtunnel fleet startup --mesh dp=192,pp=8,tp=8 --store hierarchical --bare
  windtunnel fleet startup --mesh dp=2,pp=2,tp=2 --measure --json -
"""
MOST_MEASURED = 128
"""Ranks that one machine is asked to run at most."""


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
    layout = parse_mesh(mesh)
    if store not in STORES:
        raise UnknownName("--store", store, STORES)
    if measure and layout.world > MOST_MEASURED:
        raise SpecError(
            "--measure",
            f"{layout.world} ranks",
            f"{MOST_MEASURED} and less",
            "Leave --measure out: the prediction needs no processes.",
        )
    rows = [_row(layout, "torch", "tcp", False, per_node, measure), _row(layout, "ordered", store, bare, per_node, measure)]
    if json is not None:
        write_json({"schema": "windtunnel.fleet.startup/1", "mesh": layout.sizes, "ranks": layout.world, "starts": rows}, json)
    if quiet or json == "-":
        return
    typer.echo(f"{layout.world} ranks: {layout}")
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


def _row(layout: RankLayout, path: str, store: str, bare: bool, per_node: int, measured: bool) -> dict[str, Any]:
    from windtunnel.fleet.startup.start_law import MEASURED

    world: World = "bare" if bare else "full"
    counts = torch_counts(layout) if path == "torch" else ordered_counts(layout, store, world, per_node)
    groups, ends = memberships(layout, path, world), connections(layout, path, world)
    nodes = -(-layout.world // per_node)
    at_once = counts.shared.total + counts.local.total // nodes  # the nodes' local stores work at the same time
    carried = counts.shared.bytes + counts.local.bytes // nodes
    row = {
        "path": path, "store": store, "operations": counts.total, "shared": counts.shared.table(), "local": counts.local.table(),
        "keys": counts.shared.keys + counts.local.keys, "groups": groups, "connections": ends,
        "seconds": None if store == "redis" else MEASURED.seconds(layout.world, at_once, carried, groups, ends),
    }  # fmt: skip
    if measured:
        found, seconds = _measure_start(layout, path, store, world, per_node)
        cores, size = min(os.cpu_count() or 1, layout.world), found.shared.bytes + found.local.bytes
        expected = None if store == "redis" else MEASURED.seconds(layout.world, found.total, size, groups, ends, cores)
        row["measured"] = {
            "operations": found.total, "seconds": seconds, "shared": found.shared.table(), "local": found.local.table(),
            "predicted_seconds": expected,
        }  # fmt: skip
    return row


def _measure_start(layout: RankLayout, path: str, store: str, world: World, per_node: int) -> tuple[StartCounts, float]:
    """Counted in one start, timed in another: counting takes time."""
    from dataclasses import replace

    from windtunnel.fleet.startup.measure import StartCase, measure

    case = StartCase(str(layout), path, store, world, per_node)
    return measure(replace(case, count=True)).counts, measure(case).seconds
