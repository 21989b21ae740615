"""Torus of one to four dimensions: accelerators that forward for each other (as TPU v4: Jouppi et al., ISCA 2023).

In node numbers the first dimension varies fastest. Links have their dimension, for dimension-order routing.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.grid import accelerators, chain, joins, lines
from windtunnel.network.fabrics.parameters import Builder, count, per_dimension, rates, sizes, time, times


@dataclass(frozen=True)
class Torus(Builder):
    """Neighbours joined along every dimension, the ends of each line too."""

    NAME = "torus"
    sizes: tuple[int, ...] = sizes("4x4x4", "accelerators along each of one to four dimensions")
    link: tuple[float, ...] = rates("50GB/s", "a cable, each way; one for all dimensions, or one each with + between")
    latency: tuple[float, ...] = times("500ns", "a cable, one way, with the router that it enters; likewise")
    wrap: int = count(1, "the ends are joined along dimensions whose size is a multiple of it")
    cube: int = count(1, "and only where all sizes are multiples of it")
    launch: float = time("0us", "of a call of a step, before its first byte")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.sizes) > 4:
            raise self.wrong("sizes", "one to four dimensions")

    @property
    def rings(self) -> tuple[bool, ...]:
        """Whether the ends of each dimension are joined."""
        whole = all(size % self.cube == 0 for size in self.sizes)
        return tuple(whole and size % self.wrap == 0 and joins(size) for size in self.sizes)

    def build(self) -> Graph:
        dimensions = len(self.sizes)
        rates = per_dimension(self.link, dimensions, f"{self.NAME}.link")
        latencies = per_dimension(self.latency, dimensions, f"{self.NAME}.latency")
        columns = Columns()
        points = accelerators(self, columns, self.sizes)
        for axis, ring in enumerate(self.rings):
            chain(columns, lines(points, axis), rates[axis], latencies[axis], axis, wrap=ring)
        return columns.graph(points.ravel(order="F"))
