"""Times of messages over an analytical network, unaware or aware of congestion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.astrasim.configuration import GIB_NS, AnalyticalNetwork


@dataclass(frozen=True)
class Wires:
    """A network and whether messages share its links (`aware`), which ASTRA-sim has for one dimension only."""

    network: AnalyticalNetwork
    aware: bool = False

    def __post_init__(self) -> None:
        if self.aware and len(self.network.topology) > 1:
            raise SpecError(
                "network",
                f"{len(self.network.topology)} dimensions",
                "1 dimension where congestion counts",
                "ASTRA-sim refuses more.",
            )
        if self.aware and self.network.topology[0] == "Ring" and self.network.npus_count[0] == 2:
            raise SpecError("network", "a ring of 2", "a ring of 3 or more where congestion counts", "ASTRA-sim refuses it.")

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Distance of neighbours' rank ids in each dimension."""
        out = [1]
        for count in self.network.npus_count[:-1]:
            out.append(out[-1] * count)
        return tuple(out)

    def place(self, ranks: Int64s, dim: int) -> Int64s:
        """Index of ranks in a dimension."""
        return ranks // self.strides[dim] % self.network.npus_count[dim]

    def dimension(self, src: Int64s, dst: Int64s) -> Int64s:
        """The first dimension in which two ranks differ: the only one that a message is charged for."""
        out = np.full(np.broadcast(src, dst).shape, -1, np.int64)
        for dim in reversed(range(len(self.strides))):
            out[self.place(src, dim) != self.place(dst, dim)] = dim
        return out

    def hops(self, src: Int64s, dst: Int64s) -> Int64s:
        """Links between ranks in that dimension: 1 in a FullyConnected, 2 through a Switch, the shorter way round a Ring."""
        dims = self.dimension(src, dst)
        out = np.zeros(dims.shape, np.int64)
        for dim, shape in enumerate(self.network.topology):
            count = self.network.npus_count[dim]
            ahead = (self.place(dst, dim) - self.place(src, dim)) % count
            here = {"FullyConnected": 1, "Switch": 2, "Ring": np.minimum(ahead, count - ahead)}[shape]
            out = np.where(dims == dim, here, out)
        return out

    def delay(self, src: Int64s, dst: Int64s, size: int) -> Int64s:
        """ns from sending to arrival with nothing else on the links.

        Unaware: latency * hops + size / bandwidth, once for the whole way (CongestionUnaware BasicTopology). Aware: every link
        stores the message and forwards it, each with its own truncation (Link.cpp).
        """
        dims, hops = self.dimension(src, dst), self.hops(src, dst)
        rates = np.array([one * GIB_NS for one in self.network.bandwidth])[dims]
        latency = np.array(self.network.latency)[dims]
        if self.aware:
            return hops * np.floor(latency + size / rates).astype(np.int64)
        return np.floor(latency * hops + size / rates).astype(np.int64)

    def serialization(self, size: int) -> int:
        """ns that a message keeps a link of the one dimension busy."""
        return int(size / (self.network.bandwidth[0] * GIB_NS))

    def hop_delay(self, size: int) -> int:
        """ns until a message has crossed one link of the one dimension."""
        return int(self.network.latency[0] + size / (self.network.bandwidth[0] * GIB_NS))

    @property
    def links(self) -> int:
        """Links of the one dimension (aware)."""
        count = self.network.npus
        return count * count if self.network.topology[0] == "FullyConnected" else 2 * count

    def link(self, src: Int64s, dst: Int64s, hop: int) -> Int64s:
        """The link that messages cross as their hop number `hop`: of a Switch up then down, of a Ring the shorter way round."""
        count = self.network.npus
        shape = self.network.topology[0]
        if shape == "FullyConnected":
            return src * count + dst
        if shape == "Switch":
            return src if hop == 0 else count + dst
        ahead = (dst - src) % count
        back = count - ahead < ahead
        at = np.where(back, (src - hop) % count, (src + hop) % count)
        return np.where(back, count + at, at)
