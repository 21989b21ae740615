"""How a step is run: the arguments of `predict` beside the job.

Stalls of a step for data: bytes of each reader, load of its workers, and how often slow batches empty the prefetch buffers.

Each of k workers of a reader loads every k-th micro batch, as in PyTorch's DataLoader, and may be `prefetch` ahead: it begins with
item i when it is free and item i - k prefetch was taken. An item is taken when every reader has it, and no sooner than one interval
after the item before. That recursion is run for log-normal times of a worker. The numbers drawn are the same for each job, and each
step of the recursion is a maximum or a sum, so that a longer interval never makes a run shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.compute import Factors, Profile
from windtunnel.engine import run
from windtunnel.predict.category import Task
from windtunnel.predict.price.costs import Costs, price
from windtunnel.predict.program.lower import lower
from windtunnel.predict.program.stage import PASSES
from windtunnel.spec.job import Job
from windtunnel.workload import Workload, model_flops


@dataclass(frozen=True)
class Setting:
    """The network (one of `predict.NETWORKS`) and the seed of a step, and the source of its kernels' seconds.

    `skip`: the packet engine replays repeated patterns of transfers instead of simulating them again. `factors` replace the stored
    training factors; `profile` has measurements of the job's GPU. `progress` is called with the share of transfers that have ended.
    `loads`: links are counted over time; `threads` of packets change no result.
    """

    network: str = "closed"
    seed: int = 1
    skip: bool = False
    factors: Factors | None = None
    profile: Profile | None = None
    progress: Callable[[float], object] | None = None
    loads: bool = False
    threads: int = 1

    def price(self, workload: Workload) -> Costs:
        """Costs of a workload, and the time for which its step stalls for data."""
        return with_data(workload, price(workload, self.factors, self.profile))


NORMAL = NormalDist()
NEGLIGIBLE = 1e-7
"""Stalls of less than this, in seconds per step, are ignored."""

_DRAWS = 1 << 19
"""Times of workers that are drawn, about; several runs side by side where a run needs fewer."""
_BUFFERS = 256
"""Items of a run, in buffers of a reader. A run begins with full buffers, so that stalls of a full load come out 1/256 short."""
_ITEMS = 1 << 14
_MOST = 16
"""Workers of a reader, and items a worker is ahead, that are told apart: more workers are as many times faster."""


@dataclass(frozen=True)
class Loading:
    """Readers of a job.

    `busy` seconds of a worker and `reading` seconds of the node's storage go into one micro batch; `node_bytes` are what a node
    reads for it; `worker_cv` is the spread of a worker's time over its mean.
    """

    readers_of_node: int
    readers: int
    workers: int
    prefetch: int
    busy: float
    worker_cv: float
    reading: float
    node_bytes: float

    @classmethod
    def of(cls, job: Job) -> Loading:
        """The job's readers: tensor-parallel ranks of a replica have the same input, which only `reader = "gpu"` reads for each."""
        data, plan = job.runtime.data, job.plan
        here = min(job.cluster.gpus, job.cluster.node.gpus)
        replicas = max(1, here // plan.tp)  # of the input, on a node
        each = {"gpu": here, "tp_rank": replicas, "node": 1}[data.reader]
        sequences = plan.micro_batch * (replicas if data.reader == "node" else 1)
        moved = each * sequences * plan.seq * data.bytes_per_token
        nodes = max(1, job.cluster.gpus // here * min(2, plan.pp) // plan.pp)  # the model's first and last stage need data
        cv = data.sample_cv / math.sqrt(sequences)
        files = job.cluster.node.files
        storage = data.storage if files is None or files.read is None else min(data.storage, files.read)
        reading = moved / storage + (0.0 if files is None else each * sequences * files.sample)
        return cls(each, each * nodes, data.workers, data.prefetch, sequences * data.sample, cv, reading, moved)

    @property
    def service(self) -> float:
        """Seconds to load one micro batch without variation and without overlap."""
        return max(self.busy / self.workers, self.reading)

    def stall(self, interval: float) -> float:
        """Mean delay of a micro batch in seconds, if one is needed every `interval` seconds."""
        slow = max(0.0, self.reading - interval)  # storage that is too slow delays all readers equally
        interval += slow
        mean, cv = self.busy / self.workers, self.worker_cv
        if cv < 1e-3 or self.busy == 0.0:
            return slow + max(0.0, mean - interval)
        if self._most_late(interval) < NEGLIGIBLE * interval:
            return slow
        return slow + max(0.0, self._between_items(interval) - interval)

    @property
    def _sigma(self) -> float:
        """Standard deviation of the logarithm of a worker's time."""
        return math.sqrt(math.log1p(self.worker_cv**2))

    def _most_late(self, interval: float) -> float:
        """Most seconds that an item can be late in the mean: readers E max(S - k I, 0), as a worker has k intervals at least."""
        given, sigma = self.workers * interval, self._sigma
        z = math.log(self.busy / given) / sigma
        beyond = self.busy * NORMAL.cdf(z + 0.5 * sigma) - given * NORMAL.cdf(z - 0.5 * sigma)
        return self.readers * max(beyond, 0.0)

    def _between_items(self, interval: float) -> float:
        """Mean seconds from one item taken to the next, if one is wanted every `interval` seconds."""
        workers, readers = min(self.workers, _MOST), self.readers
        ahead = workers * min(self.prefetch, _MOST)
        items = max(4 * ahead, min(_BUFFERS * ahead, _ITEMS, 8 * _DRAWS // readers))
        runs = max(1, _DRAWS // (items * readers))
        sigma = self._sigma
        middle = self.busy * workers / self.workers * math.exp(-0.5 * sigma * sigma)
        times = _drawn_times(sigma, items - ahead, runs, readers)
        free = np.zeros((workers, runs, readers))
        taken = np.zeros((ahead + items, runs))
        for item in range(items):
            worker = free[item % workers]
            if item >= ahead:  # those before are in the buffers
                np.maximum(worker, taken[item][:, None], out=worker)
                worker += middle * times[item - ahead]
            np.maximum(taken[item + ahead - 1] + interval, worker.max(axis=1), out=taken[item + ahead])
        return float(taken[-1].mean()) / items


@lru_cache(maxsize=2)
def _drawn_times(sigma: float, items: int, runs: int, readers: int) -> npt.NDArray[np.float64]:
    """Times of a worker over their median, the same for each interval and each job: (items, runs, readers)."""
    return np.exp(sigma * np.random.default_rng(0).standard_normal((items, runs, readers)))


def with_data(workload: Workload, costs: Costs) -> Costs:
    """Adds the time for which a step stalls for data; returns `costs` unchanged if it does not."""
    job, data, count = workload.job, workload.job.runtime.data, workload.job.micro_batches
    loading = Loading.of(job)
    if data.overlap == "none":
        return replace(costs, data=loading.service * count)
    ideal = model_flops(job) / (job.cluster.gpus * job.cluster.gpu.peak[job.runtime.precision])
    if data.overlap == "step" and loading.stall(ideal / count) * count < NEGLIGIBLE:
        return costs
    lowered = lower(workload, costs)
    timeline = run(lowered.program)
    if data.overlap == "step":
        late = loading.stall(timeline.makespan / count) * count
    else:
        first = next(stage for stage, parts in enumerate(job.places) if 0 in parts)
        passes = np.isin(lowered.labels[first][:, 0], (*PASSES, Task.FORWARD_AND_BACKWARD))
        late = loading.service * count - (timeline.makespan - float(timeline.end[timeline.of_rank(first)][passes].max()))
    return replace(costs, data=late) if late > NEGLIGIBLE else costs
