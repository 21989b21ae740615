"""A lower bound of the seconds of collectives for whole columns of sizes.

The rate of a call grows with its size, but for steps where the library changes its algorithm. So a call is no faster than at the
better rate of the two sizes of a grid between which it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.network import Group, collective
from windtunnel.network.nccl.settings import Settings
from windtunnel.spec import Cluster
from windtunnel.workload import Comm

STEPS = 4
"""Sizes of the grid per doubling."""

LAST = 60 * STEPS
"""The last step of the grid: 2 ** 60 bytes."""


class CallFloor:
    """Least seconds of calls; `clusters`: a cluster as each kind of its ranks has it. Groups are known by numbers."""

    def __init__(self, clusters: Sequence[Cluster], settings: Settings) -> None:
        self.clusters, self.settings = clusters, settings
        self._numbers: dict[Group | None, int] = {}
        self._rates: dict[Comm, Floats] = {}  # [groups, steps]; 0: not known yet

    def number(self, group: Group | None) -> int:
        """The number of a group; None: no call."""
        return self._numbers.setdefault(group, len(self._numbers))

    def seconds(self, comm: Comm, groups: Int64s, sizes: Floats) -> Floats:
        """Lower bound of the seconds of a call for each of `sizes` [N, ...] in bytes, over the N groups with these numbers; 0 for
        less than a byte."""
        size = np.maximum(sizes, 1.0)
        step = np.minimum((np.log2(size) * STEPS).astype(np.int64), LAST)
        rates = self._table(comm)
        place = groups.reshape(-1, *(1,) * (sizes.ndim - 1)) * (LAST + 1) + step
        found = rates[place]
        if not found.all():
            members = list(self._numbers)
            for unknown in np.unique(place[found == 0.0]).tolist():
                group, at = members[unknown // (LAST + 1)], unknown % (LAST + 1)
                rates[unknown] = max(self._rate(comm, group, at), self._rate(comm, group, at + 1))
            found = rates[place]
        return np.where(sizes >= 1.0, size / found, 0.0)

    def _table(self, comm: Comm) -> Floats:
        """The rates of a call [groups * steps], with room for all groups."""
        rates = self._rates.get(comm, np.zeros(0))
        missing = len(self._numbers) * (LAST + 1) - len(rates)
        if missing > 0:
            rates = self._rates[comm] = np.append(rates, np.zeros(missing + len(rates)))
        return rates

    def _rate(self, comm: Comm, group: Group | None, step: int) -> float:
        """Bytes a second of a call of 2 ** (step / STEPS) bytes."""
        if group is None or group.ranks <= 1:
            return math.inf
        size = 2.0 ** (step / STEPS)
        seconds = min(collective(each, comm, size, group, settings=self.settings).seconds for each in self.clusters)
        return size / seconds if seconds > 0.0 else math.inf
