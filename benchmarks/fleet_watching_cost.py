"""What watching costs: pairs of runs of a small DDP job, with and without `windtunnel fleet run --collect`, in turn.

python benchmarks/fleet_watching_cost.py --pairs 12

Each run trains `--steps` steps of two ranks on the CPU (gloo on loopback). Of each pair come the ratio of the median step, of the
CPU seconds that the ranks spend on a step, and the CPU seconds of everything beside them. Medians over the pairs, with intervals of
95 % (bootstrap). Pairs alternate in their order, so that a load which changes slowly falls on both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

_WARM = 20
"""Steps that are not counted: connections, buckets of DDP."""


def train(steps: int, out: str) -> None:
    """A rank's life; rank 0 writes its median step and the CPU seconds of a step."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    layers = [part for _ in range(6) for part in (nn.Linear(512, 512), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(512, 10)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, wanted = torch.randn(128, 512), torch.randint(0, 10, (128,))
    seconds: list[float] = []
    used = 0.0
    for step in range(_WARM + steps):
        if step == _WARM:
            used = time.process_time()
        begin = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), wanted).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    told = torch.tensor([(time.process_time() - used) / steps])
    dist.all_reduce(told)
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps({"step": median(seconds[_WARM:]), "cpu": float(told[0])}), encoding="utf-8")
    dist.destroy_process_group()


def run(watched: bool, steps: int, folder: Path) -> dict[str, float]:
    """Figures of one run, with its wall time and the CPU seconds of all of its processes."""
    out = folder / "figures.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, "--train",
               str(out), "--steps", str(steps)]  # fmt: skip
    if watched:
        name = f"run-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "windtunnel", "fleet", "run", "--dir", str(folder), "--run", name, "--collect", "--",
                   *command]  # fmt: skip
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ran = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(out.read_text(encoding="utf-8")), "wall": time.monotonic() - begin, "total": total}


def interval(values: Sequence[float], draws: int = 4000) -> tuple[float, float, float]:
    """Median, and the bounds of its 95 % interval."""
    dice = random.Random(0)
    drawn = sorted(median(dice.choices(values, k=len(values))) for _ in range(draws))
    return median(values), drawn[draws // 40], drawn[-draws // 40 - 1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--train", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.train:
        train(options.steps, options.train)
        return
    pairs = []
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            found = {watched: run(watched, options.steps, Path(place)) for watched in order}
            pairs.append((found[False], found[True]))
            print(number, *(f"{1e3 * one['step']:.2f} ms" for one in pairs[-1]), f"load {os.getloadavg()[0]:.1f}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(pairs))
    lines = {
        "step, %": [100 * (with_["step"] / plain["step"] - 1) for plain, with_ in pairs],
        "CPU of the ranks a step, %": [100 * (with_["cpu"] / plain["cpu"] - 1) for plain, with_ in pairs],
        "CPU of the whole run, s": [with_["total"] - plain["total"] for plain, with_ in pairs],
        "the whole run, s": [with_["wall"] - plain["wall"] for plain, with_ in pairs],
    }
    print(f"median step without: {1e3 * median(plain['step'] for plain, _ in pairs):.2f} ms")
    for name, values in lines.items():
        print(f"{name:28s} {'{:+.2f} ({:+.2f} … {:+.2f})'.format(*interval(values))}")


if __name__ == "__main__":
    main()
