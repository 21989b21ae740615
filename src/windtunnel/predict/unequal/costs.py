"""Seconds of a workload on each kind of rank, and of ranks of several kinds that go at one pace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.network import CommEstimate
from windtunnel.predict.costs import Costs, Network
from windtunnel.spec import Cluster, Job
from windtunnel.workload import Axis, Comm, Workload

Price = Callable[[Workload], Costs]


@dataclass
class Slowest(Network):
    """Prices of a group with ranks of several kinds: those of the kind for which a call takes longest."""

    kinds: tuple[Network, ...] = ()

    def price(self, call: Comm, axis: Axis, size: float) -> CommEstimate:
        """Estimate of one call with a total buffer of `size` bytes."""
        key = (call, axis, size)
        if key not in self.prices:
            self.prices[key] = max((kind.price(call, axis, size) for kind in self.kinds), key=lambda found: found.seconds)
        return self.prices[key]


class KindCosts:
    """Costs by the kinds of ranks that go at one pace, each made once."""

    def __init__(self, workload: Workload, first: Costs, price: Price) -> None:
        self.workload, self.first, self.price = workload, first, price
        self.known: dict[Cluster, Costs] = {workload.job.cluster: first}
        self.several: dict[frozenset[int], Costs] = {}

    def of(self, clusters: tuple[Cluster, ...], kinds: int) -> Costs:
        """Costs of ranks of all kinds whose bit is set in `kinds`."""
        each = [self._of(cluster) for k, cluster in enumerate(clusters) if kinds >> k & 1]
        if len(each) == 1:
            return each[0]
        name = frozenset(id(costs) for costs in each)
        if name not in self.several:
            network = Slowest(self.workload.job, kinds=tuple(costs.network for costs in each))
            seconds = np.maximum.reduce([costs.seconds for costs in each])
            self.several[name] = replace(each[0], seconds=seconds, network=network)
        return self.several[name]

    def of_job(self, workload: Workload) -> Costs:
        """Costs of ranks as the job of `workload` has them all."""
        return self._of(workload.job.cluster)

    def _of(self, cluster: Cluster) -> Costs:
        if cluster not in self.known:
            self.known[cluster] = self.price(replace(self.workload, job=on(self.workload.job, cluster)))
        return self.known[cluster]


def on(job: Job, cluster: Cluster) -> Job:
    """The job with all ranks as `cluster` has them."""
    return job.model_copy(update={"cluster": cluster})


def with_calls_of(over: Costs, closed: Costs, other: Costs) -> Costs:
    """`other` with the calls for which a network engine's `over` has other seconds than `closed`."""
    return replace(other, seconds=np.where(over.seconds != closed.seconds, over.seconds, other.seconds))
