"""Torus of one to four dimensions: accelerators that forward for each other (as TPU v4: Jouppi et al., ISCA 2023).

In node numbers the first dimension varies fastest. Links have their dimension, for dimension-order routing.

Accelerators on a grid, numbered with the first dimension fastest; shared by torus, mesh and ndim.

Mesh of one to four dimensions: a torus without the cables that join the ends.
"""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import MOST_NODES, Builder, count, per_dimension, rates, sizes, time, times


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


def accelerators(builder: Builder, columns: Columns, sizes: tuple[int, ...]) -> Int32s:
    """Adds one GPU for each point; their numbers in an array of shape `sizes`."""
    total = math.prod(sizes)
    if total > MOST_NODES:
        raise builder.wrong("sizes", f"at most {MOST_NODES} accelerators in all")
    points = np.unravel_index(np.arange(total), sizes, order="F")
    names = ["gpu" + ".".join(map(str, point)) for point in zip(*(axis.tolist() for axis in points), strict=True)]
    return columns.nodes(NodeKind.GPU, names).reshape(sizes, order="F")


def lines(points: Int32s, axis: int) -> Int32s:
    """[lines, size]: the points of each line along `axis`."""
    return np.moveaxis(points, axis, -1).reshape(-1, points.shape[axis])


def chain(columns: Columns, along: Int32s, rate: float, latency: float, axis: int, wrap: bool) -> None:
    """Cables between neighbours on each line of `along` [lines, size]; `wrap` joins the ends of lines of three and more."""
    columns.cables(along[:, :-1], along[:, 1:], rate, latency, axis)
    if wrap and joins(along.shape[1]):
        columns.cables(along[:, -1], along[:, 0], rate, latency, axis)


def joins(size: int) -> bool:
    """Whether a line of so many accelerators can be a ring: the ends of a shorter one are neighbours anyway."""
    return size > 2


@dataclass(frozen=True)
class Mesh(Torus):
    """Neighbours joined along every dimension."""

    NAME = "mesh"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.wrap, self.cube) != (1, 1):
            raise SpecError("mesh.wrap", self.wrap, "a torus: the ends of a mesh are not joined", "Write torus:wrap=... instead.")

    @classmethod
    def parameters(cls) -> list[tuple[str, str, str]]:
        """Those of a torus that do not join ends."""
        return [one for one in super().parameters() if one[0] not in ("wrap", "cube")]

    @property
    def rings(self) -> tuple[bool, ...]:
        """No ends are joined."""
        return (False,) * len(self.sizes)
