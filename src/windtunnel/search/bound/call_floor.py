"""A lower bound of the seconds of collectives for whole columns of sizes.

The rate of a call grows with its size, but for steps where the library changes its algorithm. So a call is no faster than at the
better rate of the two sizes of a grid between which it lies.
"""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.network import Group, collective
from windtunnel.network.nccl.settings import Settings
from windtunnel.spec import Cluster
from windtunnel.workload import Comm

STEPS = 4
"""Sizes of the grid per doubling."""


class CallFloor:
    """Least seconds of calls on one cluster."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.cluster, self.settings = cluster, settings
        self._known: dict[tuple[Comm, Group, int], float] = {}

    def seconds(self, comm: Comm, group: Group, sizes: Floats) -> Floats:
        """Lower bound of the seconds of a call for each of `sizes` in bytes; 0 where the size is 0."""
        out = np.zeros_like(sizes)
        if group.ranks <= 1:
            return out
        real = sizes > 0.0
        if not real.any():
            return out
        size = sizes[real]
        step = np.floor(np.log2(size) * STEPS).astype(np.int64)
        steps, place = np.unique(step, return_inverse=True)
        rate = np.array([max(self._rate(comm, group, n), self._rate(comm, group, n + 1)) for n in steps.tolist()])
        out[real] = size / rate[place]
        return out

    def one(self, comm: Comm, group: Group, size: float) -> float:
        """Lower bound of the seconds of one call."""
        step = math.floor(math.log2(size) * STEPS)
        return size / max(self._rate(comm, group, step), self._rate(comm, group, step + 1)) if group.ranks > 1 else 0.0

    def _rate(self, comm: Comm, group: Group, step: int) -> float:
        """Bytes a second of a call of 2 ** (step / STEPS) bytes."""
        key = (comm, group, step)
        if key not in self._known:
            size = 2.0 ** (step / STEPS)
            seconds = collective(self.cluster, comm, size, group, settings=self.settings).seconds
            self._known[key] = size / seconds if seconds > 0.0 else math.inf
        return self._known[key]
