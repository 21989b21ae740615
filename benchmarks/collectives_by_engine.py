"""Medians of |predicted / measured - 1| of published collectives, by family, nodes and engine.

python benchmarks/collectives_by_engine.py ../shared/reality/collectives.csv [--network closed,flow,packet] [--nodes 1,2]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from windtunnel.base.fidelity import FIDELITIES
from windtunnel.network import flat_group
from windtunnel.network.simulate.collective import run_collective
from windtunnel.reality.jobs.architecture import Skipped
from windtunnel.reality.rows.table import read
from windtunnel.reality.score.collectives import call_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--network", default=",".join(FIDELITIES))
    parser.add_argument("--nodes", default="1,2")
    asked = parser.parse_args()
    engines, nodes = asked.network.split(","), {int(n) for n in asked.nodes.split(",")}
    errors: dict[tuple[str, int, str], dict[str, list[float]]] = {}
    spent = dict.fromkeys(engines, 0.0)
    known: dict[tuple[object, ...], float] = {}
    for row in read(asked.file).collective:
        if (row.nodes or 1) not in nodes or row.clean != "y" or not row.time_us:
            continue
        call = call_of(row)
        if isinstance(call, Skipped):
            continue
        group = flat_group(call.cluster, call.gpus, call.per_domain)
        band = ">= 1 MiB" if call.bytes >= 2**20 else "below"
        for engine in engines:
            key = (engine, call.cluster.id, call.comm, call.bytes, call.gpus, call.cluster.node.scale_up.in_switch_reduction)
            if key not in known:
                began = time.process_time()
                known[key] = run_collective(call.cluster, call.comm, call.bytes, group, network=engine).seconds
                spent[engine] += time.process_time() - began
            error = 100.0 * abs(known[key] * 1e6 / row.time_us - 1.0)
            errors.setdefault((row.family, row.nodes or 1, band), {}).setdefault(engine, []).append(error)
            errors.setdefault(("all", row.nodes or 1, band), {}).setdefault(engine, []).append(error)
    print(f"{'family':<14} {'nodes':>5} {'size':<9} {'rows':>4}  " + "  ".join(f"{engine:>8}" for engine in engines))
    for (family, count, band), found in sorted(errors.items()):
        rows = len(next(iter(found.values())))
        print(f"{family:<14} {count:>5} {band:<9} {rows:>4}  " + "  ".join(f"{np.median(found[e]):>7.1f}%" for e in engines))
    print("CPU seconds: " + ", ".join(f"{engine} {seconds:.1f}" for engine, seconds in spent.items()))


if __name__ == "__main__":
    main()
