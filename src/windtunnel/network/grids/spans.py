"""A group of ranks on a machine of dimensions: the parts of dimensions that it runs over, and who shares their links.

A group has a part of each dimension: equal steps from accelerator to accelerator. A part that closes its ring is a ring; one that
does not, or that lies in a dimension whose ends are not joined, is a line. A strided part shares its links with the groups between.

Links of a machine of dimensions by number, without its graph: those of rings and lines, direct ones, and those of switches.

A ring or line has for each accelerator a link forward and one back; a fully connected dimension one to each place; a switch a link
up and one down. Messages go dimension by dimension, the first one first, and the shorter way round a ring.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.grids.machine import Axes, GridKind, GridMachine, number_points, points_of
from windtunnel.spec.runtime import DimensionOrder


@dataclass(frozen=True)
class GridLinks:
    """Numbers of the links of `machine`; `first` [dimensions + 1]: the first link of each dimension."""

    machine: GridMachine
    first: tuple[int, ...]

    @classmethod
    def of(cls, machine: GridMachine) -> GridLinks:
        """The links of a machine, kept."""
        return _links(machine)

    @property
    def total(self) -> int:
        """All of them."""
        return self.first[-1]

    def rows(self, dimension: int) -> slice:
        """Those of a dimension."""
        return slice(self.first[dimension], self.first[dimension + 1])

    def count_hops(self, src: Int64s, dst: Int64s, dimension: int) -> Int64s:
        """[messages] links of a dimension between places [messages, dimensions]."""
        along = self.machine.dimensions[dimension]
        ahead = dst[:, dimension] - src[:, dimension]
        if along.kind == "ring":
            ahead = np.minimum(ahead % along.size, -ahead % along.size)
        if along.kind in ("ring", "line"):
            links: Int64s = np.abs(ahead)
            return links
        return np.where(ahead != 0, 1 if along.kind == "fully_connected" else 2, 0).astype(np.int64)

    def route(self, src: Int64s, dst: Int64s) -> tuple[Int64s, Int64s]:
        """(message, link) of each link that messages between places [messages, dimensions] pass, message by message in order."""
        at = src.copy()
        found: list[tuple[Int64s, Int64s]] = []
        for dimension in range(src.shape[1]):
            found += self.pass_dimension(at, dst[:, dimension], dimension)
            at[:, dimension] = dst[:, dimension]
        return join_hops(found)

    def pass_dimension(self, at: Int64s, to: Int64s, dimension: int, back: np.ndarray | None = None) -> list[tuple[Int64s, Int64s]]:
        """(message, link) of each hop along a dimension from places [messages, dimensions] to coordinates [messages], the messages'
        hops one after the other; `back`: those that go back round a ring, left out: the shorter way, and forward if both are."""
        along = self.machine.dimensions[dimension]
        number, count = number_points(self.machine, at), self.machine.accelerators
        message = np.flatnonzero(to != at[:, dimension])
        base = self.first[dimension]
        if along.kind == "fully_connected":
            return [(message, base + number[message] * along.size + to[message])]
        if along.kind == "switch":
            there = at.copy()
            there[:, dimension] = to
            return [(message, base + number[message]), (message, base + count + number_points(self.machine, there)[message])]
        if back is None:
            ahead = to - at[:, dimension]
            back = ahead % along.size * 2 > along.size if along.kind == "ring" else ahead < 0
        found = []
        moving = at.copy()
        while len(message):
            here = number_points(self.machine, moving[message])
            found.append((message, base + back[message] * count + here))
            moving[message, dimension] = (moving[message, dimension] + np.where(back[message], -1, 1)) % along.size
            message = message[moving[message, dimension] != to[message]]
        return found

    def numbers_in(self, graph: Graph) -> Int32s:
        """[links] the graph's number of each, -1 for those that the machine lacks."""
        machine, count = self.machine, self.machine.accelerators
        point = np.full(graph.nodes, -1, np.int64)
        point[graph.endpoint[:count]] = np.arange(count)
        places = np.stack(np.unravel_index(np.arange(count), machine.sizes, order="F"), axis=1)
        numbers = np.full(self.total, -1, np.int32)
        for dimension, along in enumerate(machine.dimensions):
            at = np.flatnonzero(graph.link_axis == dimension)
            a, b = point[graph.link_from[at]], point[graph.link_to[at]]
            base = self.first[dimension]
            if along.kind == "switch":
                up = graph.node_kind[graph.link_to[at]] == NodeKind.SWITCH
                numbers[base + np.where(up, a, count + b)] = at
                continue
            x, y = places[a, dimension], places[b, dimension]
            if along.kind == "fully_connected":
                numbers[base + a * along.size + y] = at
            else:
                forward = (x + 1) % along.size == y if along.kind == "ring" else x + 1 == y
                numbers[base + np.where(forward, a, count + a)] = at
        return numbers


@lru_cache(maxsize=16)
def _links(machine: GridMachine) -> GridLinks:
    width = {"ring": 2, "line": 2, "switch": 2}
    counts = [machine.accelerators * width.get(one.kind, one.size) for one in machine.dimensions]
    return GridLinks(machine, (0, *np.cumsum(counts).tolist()))


def join_hops(found: list[tuple[Int64s, Int64s]]) -> tuple[Int64s, Int64s]:
    """(message, link) of hops, message by message in the order in which each makes them."""
    message = np.concatenate([np.zeros(0, np.int64), *(one for one, _ in found)])
    link = np.concatenate([np.zeros(0, np.int64), *(one for _, one in found)])
    order = np.argsort(message, kind="stable")
    return message[order], link[order]


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
