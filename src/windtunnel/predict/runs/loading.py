"""Stalls of a step for data: bytes of each reader, load of its workers, and how often slow batches empty the prefetch buffers.

Each of k workers of a reader loads every k-th micro batch, as in PyTorch's DataLoader, and may be `prefetch` ahead.
With S the log-normal time of one micro batch and I = k intervals between two micro batches of a worker, its lead Y follows

    Y' = min(max(Y - S, 0) + I, prefetch I)            a stall lasts S - Y where that is above 0

Lindley's recursion with a full buffer (Asmussen 2003, Applied Probability and Queues, chapter XIV). All replicas train together, so
the step waits for the longest stall, E max = integral of 1 - P(S - Y <= z)^readers over z, and a stall of one gives time to the
others: I grows by the mean stall until both agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.engine import run
from windtunnel.predict.category import Task
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.lower import lower
from windtunnel.predict.program.stage import PASSES
from windtunnel.spec.job import Job
from windtunnel.workload import Workload, model_flops

NEGLIGIBLE = 1e-7
"""Stalls of less than this, in seconds per step, are ignored."""

_LEADS, _STALLS = 64, 256
_TAIL = 7.0
"""Standard deviations of log S that the tables reach."""


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
        return cls(each, each * nodes, data.workers, data.prefetch, sequences * data.sample, cv, moved / data.storage, moved)

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
        work = _WorkerTime.of(self.busy, cv)
        if work.longest < interval * self.workers or self._late(work, interval, 0.0) < 1e-9 * interval:
            return slow
        low, high = 0.0, work.longest
        while high - low > 1e-3 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._late(work, interval, middle) > middle else (low, middle)
        return slow + high

    def _late(self, work: _WorkerTime, interval: float, stall: float) -> float:
        """Mean of the longest stall over all workers, if the mean stall is `stall`."""
        workers = self.workers * self.readers
        others = self.workers * stall * (1.0 - 1.0 / workers)  # stalls of other workers, which add to the lead
        between = self.workers * interval + others
        lead = np.linspace(between, self.prefetch * between, _LEADS) if self.prefetch > 1 else np.array([between])
        late = np.linspace(0.0, work.longest, _STALLS)
        below = work.settled(lead, between) @ work.within(lead[:, None] - others + late[None, :])
        return float(np.trapezoid(1.0 - np.clip(below, 0.0, 1.0) ** self.readers, late))


@dataclass(frozen=True)
class _WorkerTime:
    """A worker's log-normal time as a table: `done[i]` is the probability that it has ended after `times[i]`."""

    times: Floats
    done: Floats

    @classmethod
    def of(cls, mean: float, cv: float) -> _WorkerTime:
        sigma = math.sqrt(math.log1p(cv * cv))
        middle = math.log(mean) - 0.5 * sigma * sigma
        times = np.linspace(0.0, math.exp(middle + _TAIL * sigma), 2048)
        erf = [math.erf((math.log(t) - middle) / (sigma * math.sqrt(2.0))) for t in times[1:].tolist()]
        return cls(times, np.concatenate(([0.0], 0.5 + 0.5 * np.array(erf))))

    @property
    def longest(self) -> float:
        return float(self.times[-1])

    def within(self, seconds: Floats) -> Floats:
        """Probability that a worker needs no more than this time."""
        place = np.clip(seconds * ((len(self.times) - 1) / self.longest), 0.0, len(self.times) - 1.0)
        return np.asarray(self.done[place.astype(np.int64)])

    def settled(self, lead: Floats, between: float) -> Floats:
        """Stationary probabilities of the leads, if the next micro batch is needed after `between` seconds."""
        edges = 0.5 * (lead[1:] + lead[:-1])
        upto = np.ones((len(lead), len(lead)))
        upto[:, :-1] = 1.0 - self.within(lead[:, None] - edges[None, :] + between)
        moves = np.diff(upto, axis=1, prepend=0.0)
        system = moves.T - np.eye(len(lead))
        system[-1] = 1.0  # probabilities add up to one
        return np.asarray(np.linalg.solve(system, np.eye(len(lead))[-1]))


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
