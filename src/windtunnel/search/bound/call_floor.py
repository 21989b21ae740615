"""A lower bound of the seconds of collectives for whole columns of sizes.

The rate of a call grows with its size, but for steps where the library changes its algorithm. So a call is no faster than at the
better rate of the two sizes of a grid between which it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.network import Group, collective
from windtunnel.network.nccl.settings import Settings
from windtunnel.spec import Cluster
from windtunnel.workload import Comm

STEPS = 4
"""Sizes of the grid per doubling."""

LAST = 60 * STEPS
"""The last step of the grid: 2 ** 60 bytes."""


class CallFloor:
    """Least seconds of calls; `clusters`: a cluster as each kind of its ranks has it."""

    def __init__(self, clusters: Sequence[Cluster], settings: Settings) -> None:
        self.clusters, self.settings = clusters, settings
        self._rates: dict[tuple[Comm, Group], Floats] = {}

    def seconds(self, comm: Comm, group: Group, sizes: Floats) -> Floats:
        """Lower bound of the seconds of a call for each of `sizes` in bytes; 0 for less than a byte."""
        if group.ranks <= 1:
            return np.zeros_like(sizes)
        size = np.maximum(sizes, 1.0)
        step = np.minimum((np.log2(size) * STEPS).astype(np.int64), LAST)
        rates = self._rates.setdefault((comm, group), np.zeros(LAST + 1))
        found = rates[step]
        if not found.all():
            for unknown in np.unique(step[found == 0.0]).tolist():
                rates[unknown] = max(self._rate(comm, group, unknown), self._rate(comm, group, unknown + 1))
            found = rates[step]
        return np.where(sizes >= 1.0, size / found, 0.0)

    def _rate(self, comm: Comm, group: Group, step: int) -> float:
        """Bytes a second of a call of 2 ** (step / STEPS) bytes."""
        size = 2.0 ** (step / STEPS)
        seconds = min(collective(each, comm, size, group, settings=self.settings).seconds for each in self.clusters)
        return size / seconds if seconds > 0.0 else math.inf
