"""Clocks that are wrong by up to ±500 ms and ±100 ppm, brought onto one: real processes, gloo on loopback.

    python benchmarks/fleet_clocks.py [--runs 20] [--ranks 4] [--steps 300] [--first SEED]

Each rank plays a machine of its own: `WINDTUNNEL_FLEET_CLOCK` sets its clock wrong, `WINDTUNNEL_FLEET_HOST` names it. The ranks
train a small model (all-reduces of DDP) and send to their neighbours both ways. The truth is the kernel's monotonic clock, which
all processes share: each rank notes it beside its wrong clock at the start and the end. The residual is how far two ranks'
corrected clocks are from each other at the same moment, at the worst. The way between processes on one machine says nothing about a
network's.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from windtunnel.fleet.findings.clocks import align, clocks_of
from windtunnel.fleet.recorded import recorded_of_rings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.helpers.fleet_clocks import negative_arrows  # noqa: E402 - the root is on the path only now

RANK = """
import json, os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from windtunnel.fleet import watch
from windtunnel.fleet.watch.api import _Monitor

torch.set_num_threads(1)
watch.start()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
clock = _Monitor.session.recorder.now

def note():
    best = None
    for _ in range(50):
        a, c, b = time.monotonic_ns(), clock(), time.monotonic_ns()
        if best is None or b - a < best[0]:
            best = (b - a, (a + b) // 2, c)
    return best[1:]

first = note()
message = torch.zeros(16)
for step in range(int(sys.argv[1])):
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    for parity in (0, 1):
        for way in (0, 1):
            low = rank - (rank % 2 != parity)
            other = rank + 1 if rank == low else rank - 1
            if 0 <= other < world:
                if (rank == low) == (way == 0):
                    dist.send(message, other)
                else:
                    dist.recv(message, other)
    time.sleep(0.002)
print(json.dumps([first, note()]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run(folder: Path, seed: int, ranks: int, steps: int) -> list[list[list[int]]]:
    """Each rank's notes: [[monotonic, own clock] at the start, the same at the end], ns."""
    rng = np.random.default_rng(seed)
    port, processes = free_port(), []
    for rank in range(ranks):
        clock = f"{int(rng.uniform(-5e8, 5e8))},{rng.uniform(-100, 100):.3f}"
        environment = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "WINDTUNNEL_FLEET_DIR": str(folder), "WINDTUNNEL_FLEET_RUN": "run",
            "WINDTUNNEL_FLEET_CLOCK": clock, "WINDTUNNEL_FLEET_HOST": f"node{rank}", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        processes.append(
            subprocess.Popen([sys.executable, "-c", RANK, str(steps)], env=environment, stdout=subprocess.PIPE, text=True)
        )
    try:
        return [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser()
    for name, value in (("runs", 20), ("ranks", 4), ("steps", 300), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    good = 0
    print(
        "gloo on loopback\n| run | seconds | pairs negative before | after | residual µs | bound µs | solve s |\n"
        "|---|---|---|---|---|---|---|"
    )
    for seed in range(args.first, args.first + args.runs):
        with tempfile.TemporaryDirectory() as folder:
            notes = np.array(run(Path(folder), seed, args.ranks, args.steps), np.float64)
            sections = recorded_of_rings(Path(folder) / "run").sections
        begin = time.perf_counter()
        clocks = clocks_of(sections)
        took = time.perf_counter() - begin
        exact = [[(int(own) - int(sections.zero * 1e9)) / 1e9 for _, own in rank] for rank in notes.tolist()]
        true = notes[:, :, 0] / 1e9
        corrected = np.array([times + clocks.correction(f"node{rank}", np.array(times)) for rank, times in enumerate(exact)])
        # At the same true moment: each rank's clock is a straight line through its two notes.
        moments = np.array([true[:, 0].max(), true[:, 1].min()])
        shown = np.array([np.interp(moments, true[rank], corrected[rank]) for rank in range(args.ranks)])
        residual = float(np.abs(shown - shown[0]).max())
        before, after = negative_arrows(sections), negative_arrows(align(sections, clocks))
        good += residual <= 1e-3 and after == 0
        print(
            f"| {seed} | {np.ptp(moments):.1f} | {before} | {after} | {residual * 1e6:.0f} | {np.max(clocks.bound) * 1e6:.0f}"
            f" | {took:.1f} |",
            flush=True,
        )
    print(f"{good} of {args.runs} within 1 ms and without a negative arrow")
    return 0 if good == args.runs else 1


if __name__ == "__main__":
    sys.exit(main())
