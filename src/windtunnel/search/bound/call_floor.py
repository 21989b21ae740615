"""A lower bound of the seconds of collectives for whole columns of sizes.

No call is faster than the greatest rate of all calls up to its size, taken at the next size of a grid. The same holds for calls
that have that size together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.network import Group
from windtunnel.network.closed.collective import greatest_rate
from windtunnel.network.nccl.settings import Settings
from windtunnel.spec import Cluster
from windtunnel.workload import Comm

STEPS = 4
"""Sizes of the grid per doubling."""

LAST = 60 * STEPS
"""The last step of the grid: 2 ** 60 bytes."""


class CallFloor:
    """Least seconds of calls; `clusters`: a cluster as each kind of its ranks has it. Calls over groups are known by numbers."""

    def __init__(self, clusters: Sequence[Cluster], settings: Settings) -> None:
        self.clusters, self.settings = clusters, settings
        self._numbers: dict[tuple[Comm, Group] | None, int] = {}
        self._rates = np.zeros(0)  # [numbers * steps]; 0: not known yet

    def number(self, comm: Comm, group: Group) -> int:
        """The number of a call over a group."""
        return self._numbers.setdefault((comm, group), len(self._numbers))

    def no_call(self) -> int:
        """The number that stands for no call."""
        return self._numbers.setdefault(None, len(self._numbers))

    def seconds(self, numbers: Int64s, sizes: Floats) -> Floats:
        """Lower bound of the seconds of the N calls with these numbers, each of `sizes` [N, ...] bytes together; 0 for less than a
        byte."""
        size = np.maximum(sizes, 1.0)
        step = np.minimum((np.log2(size) * STEPS).astype(np.int64), LAST)
        rates = self._room_for_rates()
        place = numbers.reshape(-1, *(1,) * (sizes.ndim - 1)) * (LAST + 1) + step
        found = rates[place]
        if not found.all():
            members = list(self._numbers)
            for unknown in np.unique(place[found == 0.0]).tolist():
                call, at = members[unknown // (LAST + 1)], unknown % (LAST + 1)
                rates[unknown] = self._rate(call, 2.0 ** ((at + 1) / STEPS))
            found = rates[place]
        return np.where(sizes >= 1.0, size / found, 0.0)

    def _room_for_rates(self) -> Floats:
        """The rates of all calls, with room for more."""
        missing = len(self._numbers) * (LAST + 1) - len(self._rates)
        if missing > 0:
            self._rates = np.append(self._rates, np.zeros(missing + len(self._rates)))
        return self._rates

    def _rate(self, call: tuple[Comm, Group] | None, size: float) -> float:
        """Bytes a second of the fastest call of at most `size` bytes."""
        if call is None or call[1].ranks <= 1:
            return math.inf
        comm, group = call
        return max(greatest_rate(each, comm, group, size, self.settings) for each in self.clusters)
