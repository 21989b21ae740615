"""What starting a job's process groups costs, by torch's own path and by `init_mesh`: store operations, connections, seconds. What
`fleet startup` takes.

Start-up time of a job of any size, fitted to measured starts.

seconds = fixed + operations / rate + bytes / bandwidth + per_group · groups + per_connection · connections. Groups and connections
are those of the ranks that share a core. All terms except bytes are fitted together over starts of both paths and several sizes,
none below zero. The prediction assumes a core per rank.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

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
class StartPoint:
    """One measured start: totals over all ranks, the CPU cores that they shared, and seconds until the last rank was ready."""

    ranks: int
    operations: int
    bytes: int
    groups: int
    connections: int
    cores: float
    seconds: float


@dataclass(frozen=True)
class StartLaw:
    """Terms of the law: `fixed` seconds, seconds per store operation and byte, and seconds per group and connection of a rank's
    core.
    """

    fixed: float
    per_operation: float
    per_byte: float
    per_group: float
    per_connection: float
    error: float
    """Mean absolute relative error over the fitted starts."""

    def seconds(self, ranks: int, operations: int, size: int, groups: int, connections: int, cores: float | None = None) -> float:
        """Seconds of a start with `size` bytes through the store. `cores`: for all ranks; one each by default."""
        cores = ranks if cores is None else cores
        store = self.fixed + self.per_operation * operations + self.per_byte * size
        return store + (self.per_group * groups + self.per_connection * connections) / cores


def fit(points: Sequence[StartPoint], per_byte: float = 0.0) -> StartLaw:
    """The law that fits `points` best, in relative error. `per_byte` is measured separately: up to 64 ranks bytes and connections
    grow alike and a fit cannot separate them. SpecError for fewer than five points.
    """
    if len(points) < 5:
        raise SpecError(
            "starts", len(points), "5 or more measured starts", "Measure several sizes: windtunnel fleet startup --measure."
        )
    rows = np.array([[1.0, p.operations, p.groups / p.cores, p.connections / p.cores] for p in points])
    seconds = np.array([p.seconds for p in points])
    carried = per_byte * np.array([p.bytes for p in points])
    weighted = rows / seconds[:, None]
    scale = weighted.max(axis=0)
    scale[scale == 0] = 1.0
    terms = nnls(weighted / scale, np.maximum(0.0, 1 - carried / seconds))[0] / scale
    error = float(np.abs((rows @ terms + carried) / seconds - 1).mean())
    fixed, operation, group, connection = map(float, terms)
    return StartLaw(fixed, operation, per_byte, group, connection, error)


MEASURED = StartLaw(0.0, 2.395e-5, 5e-9, 3.319e-3, 7.805e-5, 0.092)
"""benchmarks/fleet_startup.py on two cores, 8 to 64 ranks, gloo over loopback, torch 2.13, TCPStore and the hierarchical store."""


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
    from windtunnel.fleet.startup.start_costs import MEASURED

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
