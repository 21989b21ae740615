"""Costs of unequal ranks: of each kind of rank, and of groups with several kinds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.predict.price.calls import SlowestBook
from windtunnel.predict.price.costs import Costs
from windtunnel.spec import Cluster, Job
from windtunnel.workload import Workload

Price = Callable[[Workload], Costs]


@dataclass
class MixedCosts:
    """Costs of a workload by kind of rank, each priced once. `first` are those of the job's own cluster."""

    workload: Workload
    first: Costs
    price: Price
    _each: dict[Cluster, Costs] = field(default_factory=dict)
    _several: dict[tuple[Cluster, ...], Costs] = field(default_factory=dict)

    def of(self, clusters: tuple[Cluster, ...], kinds: int) -> Costs:
        """Costs of a group with the kinds whose bit is set in `kinds`: the slowest of them in every row."""
        present = tuple(dict.fromkeys(cluster for k, cluster in enumerate(clusters) if kinds >> k & 1))
        if len(present) == 1:
            return self.of_cluster(present[0])
        if present not in self._several:
            by_kind = [self.of_cluster(cluster) for cluster in present]
            calls = SlowestBook(self.workload.job, kinds=tuple(costs.calls for costs in by_kind))
            seconds = np.maximum.reduce([costs.seconds for costs in by_kind])
            self._several[present] = replace(by_kind[0], seconds=seconds, calls=calls)
        return self._several[present]

    def of_cluster(self, cluster: Cluster) -> Costs:
        """Costs if all ranks are as in `cluster`."""
        if cluster == self.workload.job.cluster:
            return self.first
        if cluster not in self._each:
            self._each[cluster] = self.price(replace(self.workload, job=on(self.workload.job, cluster)))
        return self._each[cluster]


def on(job: Job, cluster: Cluster) -> Job:
    """The job with all ranks as in `cluster`."""
    return job.model_copy(update={"cluster": cluster})
