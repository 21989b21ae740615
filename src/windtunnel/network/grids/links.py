"""Links of a machine of dimensions by number, without its graph: those of rings and lines, direct ones, and those of switches.

A ring or line has for each accelerator a link forward and one back; a fully connected dimension one to each place; a switch a link
up and one down. Messages go dimension by dimension, the first one first, and the shorter way round a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.grids.machine import GridMachine
from windtunnel.network.grids.mapping import number_points


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
