"""What watching costs (F17): steps with the monitor on and off, in turns, in the same real processes. gloo on loopback.

    .venv/bin/python benchmarks/fleet_overhead.py --ranks 2 4 8 --steps-ms 20 100 --pairs 3000

A pair is one block of steps with the monitor and one without, in changing order; the first steps of a block, in which the monitor
looks for modules, do not count. A block is short: the pace of a machine drifts, and pairs of neighbours in time share it. What is
left is noise of 10 to 30 % a pair on a virtual machine, so that an interval of 0.5 % takes thousands of pairs.
The table shows, with 95 % intervals: the mean difference of a pair's wall times, in percent of the mean time without the monitor
(a mean of the pairs' own quotients would be too high by the variance of their denominators); the same for the fastest step of each
block, without the lowest and the highest fifth of the pairs ("fastest": what disturbs the machine now and then is not in it); the
CPU time of a rank's step without the monitor and how much it is more with it, trimmed alike; records a step, memory, and the load
average at the line's begin and end. `--records` measures the parts of a record alone, `--keep FOLDER` keeps the pairs.
The model stays the same in both kinds of blocks, and with it the group that its reducer calls: off, that costs 1 µs a bucket.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SKIPPED = 3
"""Steps at the head of a block that do not count."""


def worker(options: argparse.Namespace) -> None:
    """One rank: trains in blocks; rank 0 prints what was measured as JSON."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    from windtunnel.fleet import watch
    from windtunnel.fleet.ring import RingReader
    from windtunnel.fleet.rings import ring_path

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{options.folder}/store", rank=rank, world_size=world)
    imported = _resident()
    settings = watch.WatchSettings(folder=Path(options.folder), run="ring")
    watch.start(settings)
    started = _resident()
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 128), nn.ReLU(), *[nn.Linear(128, 128) for _ in range(8)], nn.Linear(128, 10)),
        bucket_cap_mb=0.1,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def forever(size: int) -> Any:
        data = TensorDataset(torch.randn(size * 64, 64), torch.randint(0, 10, (size * 64,)))
        while True:
            yield from DataLoader(data, size)

    def step(batches: Any) -> None:
        inputs, labels = next(batches)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    size = _batch_size(step, forever, options.steps_ms * 1e-3, torch, dist)
    batches = forever(size)

    def block(on: bool) -> tuple[float, float, float]:
        """Seconds of a step: the mean and the least of wall time, the mean of CPU time."""
        if on:
            watch.start(settings)
        else:
            watch.stop()
        for _ in range(SKIPPED):
            step(batches)
        dist.barrier()
        cpu, wall = time.process_time(), [time.perf_counter()]
        for _ in range(options.block):
            step(batches)
            wall.append(time.perf_counter())
        cpu = (time.process_time() - cpu) / options.block
        dist.barrier()
        each = [after - before for before, after in itertools.pairwise(wall)]
        return statistics.fmean(each), min(each), cpu

    block(True)
    block(False)
    gc.freeze()  # turning the monitor on makes objects, which call for a full collection: it would count for blocks that are on
    pairs = []
    for number in range(options.pairs):
        order = (True, False) if number % 2 else (False, True)
        measured = {on: block(on) for on in order}
        pairs.append((*measured[True], *measured[False]))
    watch.stop()
    rows = RingReader(ring_path(Path(options.folder) / "ring", rank)).read(0).rows
    steps, counts = len(set(rows["step"].tolist())), len(rows)
    told = {
        "pairs": pairs, "records": counts / max(steps, 1), "size": size,
        "started": started - imported, "peak": _resident() - imported, "before": before,
    }  # fmt: skip
    (Path(options.folder) / f"{rank}.json").write_text(json.dumps(told))
    dist.barrier()


def _batch_size(step: Any, forever: Any, seconds: float, torch: Any, dist: Any) -> int:
    """Samples a batch, the same on all ranks, with which a step takes about `seconds`."""
    size = 32
    for _ in range(6):
        batches = forever(size)
        for _ in range(3):
            step(batches)
        began = time.perf_counter()
        for _ in range(5):
            step(batches)
        taken = torch.tensor((time.perf_counter() - began) / 5)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        size = max(8, int(size * min(8.0, max(0.2, seconds / float(taken)))))
    return size


def _resident() -> float:
    """MiB of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure(ranks: int, steps_ms: float, pairs: int, block: int, keep: Path | None) -> None:
    """Runs `ranks` processes and prints a line of the table; `keep`: a folder for their pairs."""
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--worker", "--folder", folder, "--steps-ms", str(steps_ms)]
        command += ["--pairs", str(pairs), "--block", str(block)]
        children = []
        for rank in range(ranks):
            variables = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
            children.append(subprocess.Popen(command, env=variables))
        if any([child.wait() for child in children]):
            raise SystemExit("a rank failed")
        told = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(ranks)]
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{ranks}-ranks-{steps_ms:g}-ms.json").write_text(json.dumps(told))
    loads.append(os.getloadavg()[0])
    first, every = told[0]["pairs"], [pair for one in told for pair in one["pairs"]]
    steps, without = (statistics.fmean(pair[at] for pair in some) * 1e3 for some, at in ((first, 3), (every, 5)))
    mean = _mean([(pair[0] - pair[3]) / steps * 1e5 for pair in first])
    fastest = _trimmed([(pair[1] - pair[4]) / steps * 1e5 for pair in first])
    cpu, low, high = _trimmed([(pair[2] - pair[5]) * 1e6 for pair in every])
    columns = [f"{middle:+8.2f} {lower:+7.2f} … {upper:+5.2f}" for middle, lower, upper in (mean, fastest)]
    print(
        f"{ranks:5d} {steps:8.1f} {pairs:6d} {' '.join(columns)} {without:11.2f} {cpu:+8.0f} ± {(high - low) / 2:<5.0f} "
        f"{cpu / without / 10:+6.2f} {told[0]['records']:8.1f} {max(one['started'] for one in told):8.1f}  "
        f"{loads[0]:.1f}, {loads[1]:.1f}",
        flush=True,
    )


def _mean(values: list[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval (normal, n >= 30)."""
    mean, half = statistics.fmean(values), 1.96 * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def _trimmed(values: list[float]) -> tuple[float, float, float]:
    """Mean without the lowest and the highest fifth, and the ends of its 95 % interval (Tukey and McLaughlin)."""
    from scipy.stats import mstats, trim_mean

    low, high = mstats.trimmed_mean_ci(values, limits=(0.2, 0.2), alpha=0.05)
    return float(trim_mean(values, 0.2)), float(low), float(high)


def records() -> None:
    """CPU time of a record, opened and closed, and of a step's hooks, in one process."""
    import torch
    import torch.distributed as dist

    from windtunnel.fleet import watch
    from windtunnel.records.sections import Section

    def cost(action: Any, times: int = 20_000) -> float:
        def once() -> float:
            began = time.process_time()
            for _ in range(times):
                action()
            return (time.process_time() - began) / times * 1e6

        return min(once() for _ in range(5))

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        tensor, linear = torch.ones(16), torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.0)
        inputs = torch.ones(1, 4)

        def step() -> None:
            linear(inputs).sum().backward()
            optimizer.step()

        actions = {
            "all_reduce": lambda: dist.all_reduce(tensor),
            "all_reduce, async": lambda: dist.all_reduce(tensor, async_op=True).wait(),
            "step: forward, backward, optimizer": step,
        }
        off = {name: cost(action, 4000) for name, action in actions.items()}
        watch.start(folder=Path(folder), rows_a_step=1 << 30)
        from windtunnel.fleet.watch.api import _Monitor

        recorder = _Monitor.session.recorder
        print(f"a record, opened and closed: {cost(lambda: recorder.close(recorder.open(Section.RANGE))):.2f} µs")
        for name, action in actions.items():
            print(f"{name}: {off[name]:.1f} µs off, {cost(action, 4000) - off[name]:+.2f} µs on")
        watch.stop()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--steps-ms", type=float, nargs="+", default=[20.0, 100.0])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--block", type=int, default=0, help="steps of a block that count; 0: a tenth of a second, at least 4")
    parser.add_argument("--keep", type=Path, help="a folder for the measured pairs")
    parser.add_argument("--records", action="store_true")
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--folder", default="")
    options = parser.parse_args()
    if options.worker:
        options.steps_ms = options.steps_ms[0]
        worker(options)
    elif options.records:
        records()
    else:
        print(
            "ranks  step ms  pairs   mean %  95 % interval  fastest %  95 % interval CPU ms off  on: µs more   CPU %  records  "
            "MiB of start  load"
        )
        for ranks in options.ranks:
            for steps_ms in options.steps_ms:
                measure(ranks, steps_ms, options.pairs, options.block or max(4, round(100 / steps_ms)), options.keep)


if __name__ == "__main__":
    main()
