"""Input and output of an algorithm: the call, and its sends between rank numbers, without rates.

Ranks 0..n-1 are ordered by node, `per_node` on each (the last may have fewer). Numbers from n on are switches that add or copy:
n + i is the NVSwitch of node i; collnet.py numbers the switches of the fabric after those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.lanes import ALL
from windtunnel.network.nccl import constants as c
from windtunnel.workload.ops import Comm

COPY, ADD, MOVE = 0, 1, 2
"""COPY: the receiver overwrites its piece. ADD: it adds. MOVE: it adds, and the sender no longer has the piece."""

Cargo = tuple[Sequence[int], int]
"""Pieces that a slice carries, and COPY, ADD or MOVE."""


@dataclass(frozen=True)
class CollectiveCall:
    """One collective."""

    comm: Comm
    ranks: int
    per_node: int
    size: float
    """Bytes, as nccl-tests counts them."""
    protocol: str = c.SIMPLE
    channels: int = 1
    nics: int = 1
    """NICs of a node that the call uses: channel i leaves by NIC i mod nics."""
    step: float = c.STEP_BYTES[c.SIMPLE]
    """Data bytes in one of the eight steps of a connection's buffer."""
    root: int = 0
    dims: tuple[int, ...] = ()
    """Ranks in each dimension, innermost first (hierarchical)."""
    speeds: tuple[float, ...] = ()
    """B/s per rank in each dimension."""
    chunks: int = 1
    leaves: tuple[int, ...] = ()
    """For each node its group of leaf switches (CollNet)."""
    rings: tuple[tuple[int, ...], ...] = ()
    """Cycles of a node's local ranks, if its links do not allow every order (a mesh)."""
    stated: tuple[tuple[int, ...], ...] = ()
    """Order of a node's local ranks in each channel, from the one where it enters, if a file states it."""
    at_once: int = 8
    """Peers with which a rank exchanges at the same time (all-to-all)."""

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.per_node)

    def exits(self) -> Int64s:
        """[channels] local rank beside the NIC by which each channel leaves a node."""
        nics = max(1, min(self.nics, self.per_node))
        return (np.arange(self.channels, dtype=np.int64) % nics) * self.per_node // nics

    def orders(self, start: Int64s, back: bool = False) -> Int32s:
        """[channels, ranks] ranks node by node, each node's from local rank `start` of the channel on, around, or as stated.

        In a full mesh each channel has links of its own. `back`: every other node is passed in the opposite direction, so that a
        channel enters it by the NIC on the rail by which it left the node before.
        """
        here, full_nodes = self.per_node, self.ranks // self.per_node
        local = (start[:, None] + np.arange(here)) % here
        if self._in_full_mesh:
            ways = (start[:, None] + _zigzag(here)) % here
            nodes = [ways[:, ::-1] if back and node % 2 else ways for node in range(full_nodes)]
            return np.concatenate([way + node * here for node, way in enumerate(nodes)], axis=1).astype(np.int32)
        if self.rings and len(self.rings[0]) == here:
            rings = np.array(self.rings)[np.arange(self.channels) % len(self.rings)]
            first = np.argmax(rings == start[:, None], axis=1)[:, None]
            local = np.take_along_axis(rings, (first + np.arange(here)) % here, axis=1)
        if self.stated and len(self.stated[0]) == here:
            local = np.array(self.stated)[np.arange(self.channels) % len(self.stated)]
        order = (np.arange(full_nodes)[None, :, None] * here + local[:, None, :]).reshape(self.channels, -1)
        remaining = self.ranks - full_nodes * here
        if remaining:
            tail = full_nodes * here + (start[:, None] + np.arange(remaining)) % remaining
            order = np.concatenate([order, tail], axis=1)
        return order.astype(np.int32)

    @property
    def _in_full_mesh(self) -> bool:
        """Whether each pair of a node's GPUs has a link, each GPU a NIC, and every node an even number of GPUs, all alike."""
        here = self.per_node
        even = here > 2 and here % 2 == 0 and self.ranks % here == 0
        return even and self.nodes > 1 and self.nics >= here and len(self.rings) >= here - 1

    def node_of(self, rank: Int32s) -> Int32s:
        """Node of each rank or NVSwitch; -1 for switches of the fabric."""
        n, nodes = self.ranks, self.nodes
        nodes_of_ranks = np.where(rank < n, rank // self.per_node, np.where(rank < n + nodes, rank - n, -1))
        return nodes_of_ranks.astype(np.int32)


@dataclass(frozen=True)
class Pattern:
    """K lanes in columns; bytes are data, without a protocol's flags.

    `local_steps`, `net_steps`: slices inside a node and between nodes on the longest chain of waits. `alone(local, net)`:
    seconds of the call without delays, if the links inside a node and those between nodes take `local` and `net` seconds for
    all of their bytes. `carries(lane, slice)`: content of a slice, out of `pieces` pieces of the call's data; `home(piece)`:
    the rank that has a piece at first (all-gather, all-to-all, send/recv) or last (reduce-scatter); `target(piece)`: its
    destination in an all-to-all.
    """

    src: Int32s
    dst: Int32s
    bytes: Int64s
    slice: Int64s
    window: Int32s
    group: Int32s
    channel: Int32s
    pace: Floats
    """[K] bytes that the lane could send while the algorithm moves all of its data at full speed; its share of the rate."""
    dep_start: Int64s
    dep_lane: Int32s
    dep_lead: Int64s
    local_steps: int
    net_steps: int
    alone: Callable[[float, float], float]
    pieces: int
    carries: Callable[[int, int], Cargo]
    home: Callable[[int], int]
    target: Callable[[int], int] | None = None
    one_speed: bool = False
    """Every lane runs at the speed of the slowest kind (a ring)."""

    def __len__(self) -> int:
        return len(self.src)

    @property
    def slices(self) -> Int64s:
        """[K] slices of each lane."""
        return -(-self.bytes // self.slice)


def _zigzag(count: int) -> Int64s:
    """A way 0, 1, count - 1, 2, … through an even `count` of GPUs. Its rotations use each directed link of a full mesh once
    (Walecki's)."""
    step = np.arange(count, dtype=np.int64)
    return np.where(step % 2, (step + 1) // 2, -step // 2) % count


def cut(size: float, parts: int, most: float) -> tuple[int, int]:
    """(bytes of a chunk, chunks) for `size` bytes split over `parts`, each part in equal chunks of at most `most` bytes."""
    share = max(1, -int(-size // parts))
    count = max(1, -int(-share // max(1.0, most)))
    return -(-share // count), count


def deps(lanes: int, lane: Int64s | Int32s, on: Int64s | Int32s, lead: Int64s | int) -> tuple[Int64s, Int32s, Int64s]:
    """(dep_start, dep_lane, dep_lead) of pairs "`lane` waits for `on`" in any order."""
    by = np.argsort(lane, kind="stable")
    start = np.zeros(lanes + 1, dtype=np.int64)
    np.cumsum(np.bincount(lane, minlength=lanes), out=start[1:])
    leads = np.broadcast_to(np.asarray(lead, dtype=np.int64), (len(on),))
    return start, np.asarray(on)[by].astype(np.int32), leads[by].copy()


def fill_lanes(lanes: int, value: int) -> Int32s:
    """[lanes] one small number for all."""
    return np.full(lanes, value, dtype=np.int32)


__all__ = ["ADD", "ALL", "COPY", "MOVE", "CollectiveCall", "Cargo", "Pattern", "cut", "deps", "fill_lanes"]
