"""Start a 3-D mesh with torch's own path and with `init_mesh`: store operations, seconds, the fitted law and its predictions.

python benchmarks/fleet_startup.py [REPEATS [LARGEST]]      gloo over loopback; real processes; the paths take turns
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from datetime import timedelta
from statistics import median

from windtunnel.fleet.startup.layout import (
    RankLayout,
    StartCounts,
    connections,
    memberships,
    ordered_counts,
    parse_mesh,
    torch_counts,
)
from windtunnel.fleet.startup.measure import StartCase, measure, servers
from windtunnel.fleet.startup.start_costs import StartPoint, fit

MESHES = {8: "dp=2,pp=2,tp=2", 16: "dp=4,pp=2,tp=2", 32: "dp=4,pp=4,tp=2", 64: "dp=8,pp=4,tp=2"}
LARGE = {2048: "dp=32,pp=8,tp=8", 12288: "dp=192,pp=8,tp=8"}
WAYS = {
    "torch": StartCase("", "torch"),
    "tcp": StartCase(""),
    "tcp, bare": StartCase("", world="bare"),
    "redis": StartCase("", store="redis"),
    "hierarchical": StartCase("", store="hierarchical"),
    "hierarchical, bare": StartCase("", store="hierarchical", world="bare"),
}


def predicted(way: StartCase, layout: RankLayout) -> StartCounts:
    """Operations of a way to start, in closed form."""
    return torch_counts(layout) if way.path == "torch" else ordered_counts(layout, way.store, way.world, way.ranks_per_node)


def seconds_per_byte() -> float:
    """Seconds for each byte that TCPStore hands out: values of 16 kB, 64 in a call, one client."""
    import torch.distributed as dist

    with servers(StartCase("dp=1"), 1) as (port, _):
        store = dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=60), wait_for_workers=False)
        keys = [f"value{at}" for at in range(64)]
        store.multi_set(keys, ["x" * 16000] * len(keys))
        begin = time.perf_counter()
        for _ in range(100):
            store.multi_get(keys)
        return (time.perf_counter() - begin) / (100 * len(keys) * 16000)


def main(repeats: int = 5, largest: int = 64) -> None:
    """Measure and print."""
    # The least of the repeats makes the law: it is what the machine does when nothing else runs.
    points: dict[str, list[StartPoint]] = {name: [] for name in WAYS}
    print(
        "| ranks | way | shared ops | local ops | keys | MB | seconds, median (least - most) | RSS MiB |\n"
        + "|--:|---"
        + "|--:" * 6
        + "|"
    )
    for ranks, mesh in MESHES.items():
        if ranks > largest:
            continue
        layout = parse_mesh(mesh)
        seconds: dict[str, list[float]] = {name: [] for name in WAYS}
        memory: dict[str, float] = {}
        for _ in range(repeats):
            for name, way in WAYS.items():
                run = measure(replace(way, mesh=mesh))
                seconds[name].append(run.seconds)
                memory[name] = run.mebibytes
        for name, way in WAYS.items():
            counts = measure(replace(way, mesh=mesh, count=True)).counts
            expected = predicted(way, layout)
            assert counts.shared.calls == expected.shared.calls and counts.local.calls == expected.local.calls, name
            took = seconds[name]
            both = counts.shared + counts.local
            print(f"| {ranks} | {name} | {counts.shared.total} | {counts.local.total} | {both.keys} | {both.bytes / 1e6:.2f} |"
                  f" {median(took):.3f} ({min(took):.3f} - {max(took):.3f}) | {memory[name]:.0f} |", flush=True)  # fmt: skip
            groups, ends = memberships(layout, way.path, way.world), connections(layout, way.path, way.world)
            points[name].append(StartPoint(ranks, counts.total, both.bytes, groups, ends, os.cpu_count() or 1, min(took)))
    # Redis costs another time an operation: it has a law of its own.
    law = fit([point for name, listed in points.items() if name != "redis" for point in listed], seconds_per_byte())
    print(f"\n{law}")
    print("\n| ranks | way | shared ops | local ops | keys | GB | predicted seconds |\n|--:|---|--:|--:|--:|--:|--:|")
    for ranks, mesh in LARGE.items():
        layout = parse_mesh(mesh)
        for name, way in WAYS.items():
            counts = predicted(way, layout)
            ends, groups = connections(layout, way.path, way.world), memberships(layout, way.path, way.world)
            # The nodes' local stores work at the same time.
            operations = counts.shared.total + int(counts.local.total * way.ranks_per_node / ranks)
            nodes = way.ranks_per_node / ranks
            carried = int(counts.shared.bytes + counts.local.bytes * nodes)
            took = "" if name == "redis" else f"{law.seconds(ranks, operations, carried, groups, ends):.3g}"
            keys = counts.shared.keys + counts.local.keys
            size = (counts.shared + counts.local).bytes / 1e9
            print(f"| {ranks} | {name} | {counts.shared.total} | {counts.local.total} | {keys} | {size:.3g} | {took} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
