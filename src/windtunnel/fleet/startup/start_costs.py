"""What starting a job's process groups costs, by torch's own path and by `init_mesh`: store operations, connections, seconds. What
`fleet startup` takes.
"""

from __future__ import annotations

import os
from typing import Any

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.options import asks, option
from windtunnel.fleet.startup.layout import (
    STORES,
    RankLayout,
    StartCounts,
    World,
    connections,
    memberships,
    ordered_counts,
    parse_mesh,
    torch_counts,
)


@dataclass(frozen=True)
class StartCostOptions:
    """What starting a job's process groups is asked with."""

    mesh: str = option("Ranks of each axis, the last one fastest.", metavar="AXIS=N,…")
    store: str = option("Where ranks meet.", "tcp", metavar="|".join(STORES))
    _: KW_ONLY
    bare: bool = option("Leave the default group without connections.", False)
    per_node: int = option("Ranks of a node, for the hierarchical store.", 8, least=1)
    measured: bool = option("Also start it here, over gloo on loopback; needs torch.", False, word="--measure")


@dataclass(frozen=True)
class StartCostCommandOptions(StartCostOptions):
    """The same for the command line."""

    json: str | None = shared.json()
    quiet: bool = shared.quiet()


MOST_MEASURED = 128
"""Ranks that one machine is asked to run at most."""


def start_costs_of(asked: StartCostOptions) -> dict[str, Any]:
    """Operations, keys, connections and seconds of starting `mesh`, such as "dp=8,pp=4,tp=2" (the last axis fastest): `starts` by
    torch's own path over TCP, and by `init_mesh` over `store`.

    Seconds are fitted to loopback, and None where there is no law for the store. SpecError for a mesh that is none or too large to
    measure, UnknownName for a store.
    """
    mesh, store, bare, per_node, measured = asked.mesh, asked.store, asked.bare, asked.per_node, asked.measured
    layout = parse_mesh(mesh)
    if store not in STORES:
        raise UnknownName("--store", store, STORES)
    if measured and layout.world > MOST_MEASURED:
        raise SpecError(
            "--measure",
            f"{layout.world} ranks",
            f"{MOST_MEASURED} and less",
            "Leave --measure out: the prediction needs no processes.",
        )
    rows = [_row(layout, "torch", "tcp", False, per_node, measured), _row(layout, "ordered", store, bare, per_node, measured)]
    return {"schema": "windtunnel.fleet.startup/1", "mesh": layout.sizes, "ranks": layout.world, "starts": rows}


start_costs = asks(StartCostOptions)(start_costs_of)


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
