"""The shared loader: bytes that a node's ranks read, and how often a step waits for data.

python benchmarks/fleet_loading.py [STEPS]      real processes on this machine; no GPU, no collectives
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.fleet.loading.loader import NodePlace, SharedLoader
from windtunnel.fleet.loading.workers import EpochOrder, stack

SAMPLE = 64 * 1024
ROWS = ((1, 8, 0.5, 0.1), (1, 2, 0.25, 0.8), (1, 4, 0.25, 0.8), (1, 8, 0.5, 0.8), (4, 16, 0.5, 0.8))
"""Workers, prefetch, variation, utilisation. At 0.1 every batch is there in time: those stalls are the machine's."""


class OnDisk:
    """Samples of 64 KiB in one file, read anew each time."""

    def __init__(self, path: Path, samples: int) -> None:
        self.path, self.samples = path, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> np.ndarray:
        with self.path.open("rb", buffering=0) as file:
            file.seek(index * SAMPLE)
            return np.frombuffer(file.read(SAMPLE), np.uint8)


class Slow:
    """A batch of one sample takes gamma-distributed seconds with this mean and coefficient of variation."""

    def __init__(self, mean: float, variation: float) -> None:
        self.mean, self.shape = mean, variation**-2

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> float:
        begin = time.perf_counter()
        time.sleep(float(np.random.default_rng(index).gamma(self.shape, self.mean / self.shape)))
        return time.perf_counter() - begin


def forked(bodies: list[Callable[[], Any]]) -> list[Any]:
    """What each body returns, run in processes of their own at once."""
    pipes = []
    for body in bodies:
        there, here = os.pipe()
        if os.fork() == 0:
            os.close(there)
            os.write(here, json.dumps(body()).encode())
            os._exit(0)
        os.close(here)
        pipes.append(there)
    found = [json.loads(os.fdopen(there).read()) for there in pipes]
    for _ in bodies:
        os.wait()
    return found


def rchar(process: int | str = "self") -> int:
    """Bytes that a process has read so far."""
    return int(Path(f"/proc/{process}/io").read_text().split()[1])


def family(process: int) -> list[int]:
    """A process and all that it forked."""
    found = [process]
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        found += family(int(child))
    return found


def bytes_read(samples: int = 512, batch: int = 8) -> None:
    """MB of /proc/*/io of all processes over one epoch: 8 ranks that read alone, and 8 that share a reader."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data")
        path.write_bytes(np.random.default_rng(0).bytes(samples * SAMPLE))
        dataset = OnDisk(path, samples)
        steps = samples // batch

        def alone() -> int:
            before = rchar()
            for indices in EpochOrder(samples, batch).batches(0):
                stack([dataset[index] for index in indices])
            return rchar() - before

        def shared(rank: int) -> Callable[[], int]:
            def run() -> int:
                before = rchar()
                loader = SharedLoader(
                    dataset, batch, NodePlace(rank, (0,) * 8, 1), address=f"bytes-{os.getppid()}", collate_fn=stack, prefetch=1
                )
                for at, _ in enumerate(loader, 1):
                    if at == steps:
                        break
                time.sleep(0.5)  # all ranks are there, and the reader is idle
                others = family(os.getpid())[1:] if rank == 0 else []
                total = rchar() - before + sum(map(rchar, others))
                time.sleep(0.5)
                return total

            return run

        apart, together = sum(forked([alone] * 8)), sum(forked([shared(rank) for rank in range(8)]))
        size = samples * SAMPLE / 1e6
        print(
            f"| epoch of {size:.1f} MB | 8 alone {apart / 1e6:.1f} MB | 8 shared {together / 1e6:.1f} MB | {together / apart:.4f} |"
        )


def stalls(steps: int) -> None:
    """Steps of 40 ms; a step stalls if its batch is not there when it asks, or takes longer than 1 ms to come."""
    print("\n| workers | prefetch | CV of a batch's time | utilisation | as measured | batch not there | longer than 1 ms |")
    print("|" + "--:|" * 7)
    step = 0.04
    for workers, prefetch, variation, busy in ROWS:
        dataset, name = Slow(busy * step * workers, variation), f"stall-{os.getpid()}"
        with SharedLoader(dataset, 1, address=name, collate_fn=stack, num_workers=workers, prefetch=prefetch) as loader:
            batches = iter(loader)
            next(batches)
            time.sleep(step * (prefetch + 1) * workers)  # the first fill belongs to start-up
            late = absent = 0
            due = first = time.perf_counter()
            busied = 0.0
            for _ in range(steps):
                absent += not loader.ready()
                begin = time.perf_counter()
                busied += float(next(batches)[0])
                late += time.perf_counter() - begin > 1e-3
                due = max(due + step, time.perf_counter())
                time.sleep(max(0.0, due - time.perf_counter()))
            used = busied / workers / (time.perf_counter() - first)
        shares = f"{absent / steps:.1%} of {steps} | {late / steps:.1%}"
        print(f"| {workers} | {prefetch} | {variation} | {busy} | {used:.2f} | {shares} |", flush=True)


if __name__ == "__main__":
    bytes_read()
    stalls(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
