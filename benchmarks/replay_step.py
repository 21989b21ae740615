"""A pipeline step packet by packet, with each pattern of transfers simulated once, and with all of them.

python benchmarks/replay_step.py [micro batches] [MB a transfer and GPU] [jitter of compute]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from windtunnel.engine import Program, ProgramBuilder, Timeline, run
from windtunnel.engine.packet import Marking, PacketOptions, packet_network, plain_lanes
from windtunnel.engine.routes import NicChoice, RouteOptions, route
from windtunnel.network.fabrics.registry import parse_fabric

STAGES, PER_STAGE = 8, 8


def pipeline(micro_batches: int, forward: float, jitter: float = 0.0, stages: int = STAGES) -> Program:
    """1F1B of stages that compute `forward` seconds and twice that backward; key 2 * (m * stages + s) is what stage s sends on for
    micro batch m, the odd one after it what it gets back. `jitter`: compute of each pass differs by up to that share."""
    builder = ProgramBuilder(categories=2)
    draw = np.random.default_rng(1)
    ranks = [builder.rank() for _ in range(stages)]
    for s, rank in enumerate(ranks):
        warm = min(stages - s, micro_batches)
        order = [("F", m) for m in range(warm)]
        for m in range(micro_batches):
            order += [("B", m)] + ([("F", warm + m)] if warm + m < micro_batches else [])

        def meet(key: int, stream: int, waits: list[int], rank: Any = rank) -> int:
            return int(rank.add_rendezvous(stream=stream, parts=[(key, 1e-3, 2)], waits=waits, cat_wait=1, cat_transfer=1))

        for kind, m in order:
            length = (1.0 if kind == "F" else 2.0) * forward * (1.0 + jitter * draw.uniform(-1, 1))
            task = builder.add_template(seconds=[length], category=[0], stream=[0])
            if kind == "F":
                got = [meet(2 * (m * stages + s - 1), 1, [])] if s > 0 else []
                done = rank.add(task, waits=got)
                if s + 1 < stages:
                    meet(2 * (m * stages + s), 2, [done])
            else:
                got = [meet(2 * (m * stages + s) + 1, 3, [])] if s + 1 < stages else []
                done = rank.add(task, waits=got)
                if s > 0:
                    meet(2 * (m * stages + s - 1) + 1, 4, [done])
    return builder.build()


def network(micro_batches: int, size: int, skip: float | None, stages: int = STAGES) -> Any:
    """Stage s is server s of a rail-optimised fabric; all of its GPUs send `size` bytes to their like at once."""
    graph = parse_fabric(f"rail:servers={stages},leaf_servers=2,oversubscription=4,link=100Gb/s")
    src, dst, starts = [], [], [0]
    for s in range(stages - 1):
        for a, b in ((s, s + 1), (s + 1, s)):
            src += [a * PER_STAGE + g for g in range(PER_STAGE)]
            dst += [b * PER_STAGE + g for g in range(PER_STAGE)]
            starts.append(len(src))
    lanes = plain_lanes(src, dst, np.full(len(src), size))
    paths = route(graph, lanes.src, lanes.dst, options=RouteOptions(nic=NicChoice.RAIL))
    keys = [2 * (m * stages + s) + back for m in range(micro_batches) for s in range(stages - 1) for back in (0, 1)]
    plan = [2 * s + back for m in range(micro_batches) for s in range(stages - 1) for back in (0, 1)]
    options = PacketOptions(algorithm="dcqcn", ecn=(Marking(12.5e9, 100e3, 400e3, 0.2),))
    return packet_network(graph, paths, lanes, starts, keys, plan, options, skip=skip)


def ends(program: Program, on: Any) -> tuple[Timeline, float, dict[str, Any]]:
    began = time.process_time()
    timeline = run(program, network=on, critical_path=False)
    return timeline, time.process_time() - began, on.report()


def main() -> None:
    micro_batches = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    size = int(float(sys.argv[2]) * 1e6) if len(sys.argv) > 2 else 8_000_000
    jitter = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    program = pipeline(micro_batches, 2e-3, jitter)
    full, slow, whole = ends(program, network(micro_batches, size, None))
    print(f"all simulated: step {full.makespan * 1e3:.4f} ms, {slow:.2f} CPU-s, {whole['stats']['data_packet_hops']:.3e} data hops")
    for tolerance in (0.0, 1e-3, 1e-2, 5e-2):
        fast, quick, part = ends(program, network(micro_batches, size, tolerance))
        transfer = np.isfinite(full.transfer_begin)
        took, near = (full.end - full.transfer_begin)[transfer], (fast.end - fast.transfer_begin)[transfer]
        of, off = part["replay"], np.abs(near / took - 1)
        equal = "equal" if (part["link_data"] == whole["link_data"]).all() else "differ"
        print(
            f"tolerance {tolerance:5.3f}: step {fast.makespan / full.makespan - 1:+.1e}, "
            f"{quick:.2f} CPU-s ({slow / max(quick, 1e-9):.0f} x), skipped {of['skipped_share']:.4f} of hops, "
            f"{of['patterns']} patterns; transfers off by {off.mean():.1e} on average, {off.max():.1e} at most, "
            f"estimated {of['error_share']:.1e}; link bytes {equal}, "
            f"of control {part['link_control'].sum() / whole['link_control'].sum() - 1:+.0e}"
        )


if __name__ == "__main__":
    main()
