"""How a step is run: the arguments of `predict` beside the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windtunnel.compute import Factors, Profile
from windtunnel.predict.price.costs import Costs, price
from windtunnel.predict.runs.loading import with_data
from windtunnel.workload import Workload


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
