"""More of a resource never makes a step slower, on any number of random jobs of the whole catalogue.

    python tests/more_resources.py --jobs 3000 [--from SEED] [--workers 2]

Each of a machine's resources is doubled, one at a time, and the step predicted in closed form. Exit code 1 where one is slower by
more than 0.1 %; each is shown with its number, which `wide_jobs.drawn_job` takes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from wide_jobs import drawn_job

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict import predict
from windtunnel.spec import Job

RESOURCES = ("flops", "nvlink", "nic_bandwidth", "hbm_bandwidth", "memory", "nic_count")
SLOWER = 1e-3
"""Share of a step by which more of something may be slower: rounding of discrete choices."""


class Slower(NamedTuple):
    number: int
    resource: str
    before: float
    after: float


def doubled(job: Job, resource: str) -> Job | None:
    """The job on a machine with twice as much of one resource; None where the machine has none of it."""
    cluster = job.cluster
    node, gpu, scale, nic = cluster.node, cluster.node.gpu, cluster.node.scale_up, cluster.node.nic
    if resource == "flops":
        rates = {name: {k: 2 * v for k, v in getattr(gpu, name).items()} for name in ("peak", "achievable")}
        node = node.model_copy(update={"gpu": gpu.model_copy(update=rates)})
    elif resource == "hbm_bandwidth":
        node = node.model_copy(update={"gpu": gpu.model_copy(update={"memory_bandwidth": 2 * gpu.memory_bandwidth})})
    elif resource == "memory":
        node = node.model_copy(update={"gpu": gpu.model_copy(update={"memory": 2 * gpu.memory})})
    elif resource == "nvlink":
        node = node.model_copy(update={"scale_up": scale.model_copy(update={"bandwidth": 2 * scale.bandwidth})})
    elif nic is None:
        return None
    elif resource == "nic_bandwidth":
        node = node.model_copy(update={"nic": nic.model_copy(update={"bandwidth": 2 * nic.bandwidth})})
    elif resource == "nic_count":
        node = node.model_copy(update={"nic": nic.model_copy(update={"count": 2 * nic.count})})
    else:
        raise KeyError(resource)
    return job.model_copy(update={"cluster": cluster.model_copy(update={"node": node})})


def slower_with_more(number: int) -> list[Slower]:
    """What makes the job of a number slower."""
    job = drawn_job(number)
    try:
        before = predict(job).step_time_s
    except WindtunnelError:
        return []
    found = []
    for resource in RESOURCES:
        better = doubled(job, resource)
        if better is not None and (after := predict(better).step_time_s) > before * (1.0 + SLOWER):
            found.append(Slower(number, resource, before, after))
    return found


def _all(first: int, count: int, workers: int) -> Iterator[list[Slower]]:
    with multiprocessing.Pool(workers) as pool:
        yield from pool.imap_unordered(slower_with_more, range(first, first + count), chunksize=8)


def main() -> int:
    """0 where nothing is slower."""
    parser = argparse.ArgumentParser(description="More of a resource never makes a step slower.")
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    began, counts, worst = time.perf_counter(), Counter[str](), list[Slower]()
    for found in _all(arguments.first, arguments.jobs, arguments.workers):
        counts.update(one.resource for one in found)
        worst += found
    for one in sorted(worst, key=lambda s: s.before / s.after)[:60]:
        print(f"job {one.number}: {one.resource} x2 {one.before:.6g} -> {one.after:.6g} s ({one.after / one.before - 1:+.2%})")
    told = ", ".join(f"{name} {counts[name]}" for name in RESOURCES)
    print(f"{arguments.jobs} jobs in {time.perf_counter() - began:.0f} s, slower with more: {told}")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
