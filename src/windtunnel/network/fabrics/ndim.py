"""Hierarchical N-dimensional machines as in ASTRA-sim: each dimension is a ring, fully connected, or a switch.

Won et al., "ASTRA-sim2.0", ISPASS 2023: `topology: [Ring, FullyConnected, Switch]`, `npus_count`, `bandwidth` and `latency` one
each for every dimension; the bandwidth is that of one link. Accelerators forward between dimensions. Dimension 0 is the
innermost.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.columns import Columns, numbered_names
from windtunnel.network.fabrics.parameters import Builder, per_dimension, rates, sizes, time, times, words
from windtunnel.network.fabrics.torus import accelerators, chain, lines

KINDS = ("ring", "fully_connected", "switch")


@dataclass(frozen=True)
class NDim(Builder):
    """Each dimension with its own shape, bandwidth and latency."""

    NAME = "ndim"
    kinds: tuple[str, ...] = words("ring+fully_connected+switch", "ring, fully_connected or switch for each dimension", KINDS)
    sizes: tuple[int, ...] = sizes("4x8x2", "accelerators along each dimension")
    link: tuple[float, ...] = rates("200GB/s+100GB/s+50GB/s", "a cable, each way; one for all, or one each with + between")
    latency: tuple[float, ...] = times("50ns+500ns+2us", "a cable, one way; likewise")
    launch: float = time("0us", "of a call of a step, before its first byte")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.kinds) != len(self.sizes):
            raise self.wrong("kinds", f"{len(self.sizes)} names, one for each of the sizes {'x'.join(map(str, self.sizes))}")

    def build(self) -> Graph:
        dimensions = len(self.sizes)
        rates = per_dimension(self.link, dimensions, f"{self.NAME}.link")
        latencies = per_dimension(self.latency, dimensions, f"{self.NAME}.latency")
        columns = Columns()
        points = accelerators(self, columns, self.sizes)
        for axis, kind in enumerate(self.kinds):
            along = lines(points, axis)
            if kind == "ring":
                chain(columns, along, rates[axis], latencies[axis], axis, wrap=True)
            elif kind == "fully_connected":
                one, two = np.triu_indices(self.sizes[axis], 1)
                columns.cables(along[:, one], along[:, two], rates[axis], latencies[axis], axis)
            else:
                switches = columns.nodes(NodeKind.SWITCH, numbered_names(f"switch{axis}.", len(along)))
                columns.cables(along, switches[:, None], rates[axis], latencies[axis], axis)
        return columns.graph(points.ravel(order="F"))
