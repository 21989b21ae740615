"""Who talks to whom in a phase: indices into the list of a collective's ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel_oracles.astrasim.phases import Ring
from windtunnel_oracles.astrasim.wires import Wires


@dataclass(frozen=True)
class Members:
    """The ranks [G] of a collective, in ring order where they are a group of their own, else 0 to npus - 1."""

    wires: Wires
    ranks: Int64s

    def index(self, ring: Ring) -> Int64s:
        """Each rank's index in its ring [G]."""
        at = np.arange(len(self.ranks))
        return at if ring.local or ring.dim < 0 else self.wires.place(self.ranks, ring.dim)

    def peer(self, ring: Ring, offset: int, back: bool = False) -> Int64s:
        """The member that many places ahead of each [G]."""
        return self._move_along(ring, np.full(len(self.ranks), -offset if back else offset))

    def partner(self, ring: Ring, offset: int) -> Int64s:
        """The member with which each swaps: that many ahead for even blocks of that many, behind for odd ones [G]."""
        return self._move_along(ring, np.where((self.index(ring) // offset) % 2 == 0, offset, -offset))

    def _move_along(self, ring: Ring, by: Int64s) -> Int64s:
        at = np.arange(len(self.ranks))
        if ring.local or ring.dim < 0:
            return (at + by) % ring.count
        index = self.index(ring)
        return at + ((index + by) % ring.count - index) * self.wires.strides[ring.dim]

    def delay(self, to: Int64s, size: int) -> Int64s:
        """ns of a message from each member to `to` [G]."""
        return self.wires.delay(self.ranks, self.ranks[to], size)
