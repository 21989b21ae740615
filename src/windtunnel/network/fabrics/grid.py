"""Accelerators on a grid, numbered with the first dimension fastest; shared by torus, mesh and ndim."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.engine.graph import NodeKind
from windtunnel.network.fabrics.columns import Columns
from windtunnel.network.fabrics.parameters import MOST_NODES, Builder


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
