"""A group of ranks on a machine of dimensions: the parts of dimensions that it runs over, and who shares their links.

A group has a part of each dimension: equal steps from accelerator to accelerator. A part that closes its ring is a ring; one that
does not, or that lies in a dimension whose ends are not joined, is a line. A strided part shares its links with the groups between.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.network.grids.links import GridLinks
from windtunnel.network.grids.machine import GridKind, GridMachine
from windtunnel.network.grids.mapping import Axes, number_points, points_of
from windtunnel.spec.runtime import DimensionOrder


@dataclass(frozen=True)
class GridSpan:
    """A group's part of a dimension: `size` accelerators, `stride` apart; `shared`: groups whose bytes are on its busiest link at
    the same time, itself included. `whole`: accelerators of the dimension."""

    dimension: int
    kind: GridKind
    size: int
    stride: int
    shared: int
    whole: int


@dataclass(frozen=True)
class GridGroup:
    """Where a group is on its machine: its spans, none for pairs that send to each other; and of messages from each rank to the
    next `hops` and `load`: links of each dimension that the farthest one passes, and messages on the busiest link of each."""

    spans: tuple[GridSpan, ...]
    hops: tuple[int, ...] = ()
    load: tuple[int, ...] = ()
    order: DimensionOrder | None = None
    chunks: int | None = None

    @property
    def messages(self) -> bool:
        """Whether the ranks are pairs that send to each other."""
        return not self.spans


class NotAPart(ValueError):
    """A group's accelerators are not the same part of every dimension."""


def spans_of(machine: GridMachine, points: Int64s) -> tuple[GridSpan, ...]:
    """Spans of equal groups that communicate at once; `points` [groups, ranks, dimensions]. Raises NotAPart."""
    digits = [
        (dimension, size, stride)
        for dimension in range(points.shape[2])
        for size, stride in _find_steps(points[0, :, dimension].tolist())
    ]
    if np.prod([size for _, size, _ in digits], dtype=np.int64) != points.shape[1]:
        raise NotAPart
    low = points.min(axis=1, keepdims=True)
    offsets = np.sort(number_points(machine, points - low), axis=1)
    if (offsets != offsets[0]).any():
        raise NotAPart
    spans = []
    for dimension, size, stride in digits:
        along = machine.dimensions[dimension]
        kind = along.kind
        if kind == "ring" and size * stride != along.size:
            kind = "line"
        starts = points[(points[:, :, dimension] - low[:, :, dimension]) // stride % size == 0]
        shared = _count_sharing(machine, starts, dimension, size, stride, kind)
        spans.append(GridSpan(dimension, kind, size, stride, shared, along.size))
    return tuple(spans)


def _find_steps(values: list[int]) -> list[tuple[int, int]]:
    """(size, stride) of nested equal steps whose sums are these places."""
    left = sorted(set(values))
    found = []
    while len(left) > 1:
        stride = left[1] - left[0]
        size = next((at for at in range(2, len(left)) if left[at] - left[at - 1] != stride), len(left))
        if len(left) % size:
            raise NotAPart
        blocks = np.array(left).reshape(-1, size)
        if (blocks - blocks[:, :1] != blocks[0] - blocks[0, 0]).any():
            raise NotAPart
        found.append((size, stride))
        left = blocks[:, 0].tolist()
    return found


def _count_sharing(machine: GridMachine, starts: Int64s, dimension: int, size: int, stride: int, kind: GridKind) -> int:
    """Lines of groups on the busiest link; `starts` [lines, dimensions]: the first accelerator of each."""
    if kind not in ("ring", "line"):
        return 1
    place = starts[:, dimension]
    others = starts.copy()
    others[:, dimension] = 0
    _, row = np.unique(number_points(machine, others), return_inverse=True)
    if kind == "ring":
        return int(np.bincount(row).max())
    rises = np.zeros((int(row.max()) + 1, machine.sizes[dimension] + 1), np.int64)
    np.add.at(rises, (row, place), 1)
    np.add.at(rises, (row, place + (size - 1) * stride), -1)
    return int(np.cumsum(rises, axis=1).max())


def messages_of(machine: GridMachine, pairs: list[Int64s]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(hops, load) of messages from the first to the second rank of each row; `pairs`: for each set that sends at once
    [pairs, 2, dimensions]."""
    links = GridLinks.of(machine)
    hops, load = (0,) * len(machine.sizes), np.zeros(len(machine.sizes), np.int64)
    for points in pairs:
        each = np.stack([links.count_hops(points[:, 0], points[:, 1], d) for d in range(points.shape[2])], axis=1)
        far = max(map(tuple, np.unique(each, axis=0).tolist()), key=lambda row: (sum(row), row))
        hops = max(hops, far, key=lambda row: (sum(row), row))
        _, passed = links.route(points[:, 0], points[:, 1])
        count = np.bincount(passed, minlength=links.total)
        load = np.maximum(load, [int(count[links.rows(d)].max(initial=0)) for d in range(points.shape[2])])
    return hops, tuple(load.tolist())


@lru_cache(maxsize=256)
def _points(machine: GridMachine, axes: Axes) -> Int64s:
    return points_of(machine, axes)


def grid_points(machine: GridMachine, axes: Axes, rows: Int64s) -> Int64s:
    """[groups, ranks, dimensions] places of ranks."""
    return _points(machine, axes)[rows]
