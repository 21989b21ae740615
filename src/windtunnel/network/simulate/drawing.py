"""Where a fabric's links lie in its drawing: rows of boxes for servers and for tiers of switches, and edges between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.engine.graph import Graph, NodeKind

MOST_BOXES = 48
"""Maximum of boxes in one row of the drawing; neighbouring nodes share a box if there are more nodes."""
TIERS = ("leaf", "spine", "core")
"""Names of the switches above servers."""


@dataclass(frozen=True)
class Drawing:
    """`boxes`: row (0: servers, then leaves, spines, cores), label and number of nodes; `edges`: two boxes and number of cables.

    `leaving`: links that leave a box, and the box [2, n]; `crossing`: links between two boxes, and their edge [2, n].
    """

    boxes: tuple[tuple[int, str, int], ...]
    edges: tuple[tuple[int, int, int], ...]
    leaving: Int64s
    crossing: Int64s

    def fullest(self, load: Floats) -> tuple[Floats, Floats]:
        """The largest `load` [L] of each box's and of each edge's links."""
        of_boxes, of_edges = np.zeros(len(self.boxes)), np.zeros(len(self.edges))
        np.maximum.at(of_boxes, self.leaving[1], load[self.leaving[0]])
        np.maximum.at(of_edges, self.crossing[1], load[self.crossing[0]])
        return of_boxes, of_edges


def tiers(graph: Graph) -> Int64s:
    """Row of each node [N]: 0 inside servers and for endpoints, above that the number of links to the nearest of these."""
    tier_of = np.where((graph.node_site >= 0) | (graph.node_kind != NodeKind.SWITCH), 0, -1).astype(np.int64)
    tier_of[graph.endpoint] = 0
    for tier in range(1, 64):
        near = graph.link_to[(tier_of[graph.link_from] == tier - 1) & (tier_of[graph.link_to] < 0)]
        if not len(near):
            break
        tier_of[near] = tier
    return np.maximum(tier_of, 0)


def draw(graph: Graph, tier: Int64s) -> Drawing:
    """Servers, or endpoints of a plain fabric, as the lowest row, then a row for each tier of switches; no links inside servers."""
    unit = np.where(graph.node_site >= 0, graph.node_site, -1).astype(np.int64)
    lone = (tier == 0) & (unit < 0)
    unit[lone] = (int(unit.max()) + 1) + np.arange(int(lone.sum()))
    box = np.full(graph.nodes, -1, np.int64)
    boxes: list[tuple[int, str, int]] = []
    for row in range(int(tier.max()) + 1):
        nodes = np.nonzero(tier == row)[0]
        members = unit[nodes] if row == 0 else np.arange(len(nodes))
        distinct, index = np.unique(members, return_inverse=True)
        count = min(len(distinct), MOST_BOXES)
        box[nodes] = len(boxes) + index * count // max(1, len(distinct))
        name = "server" if row == 0 and (graph.node_site >= 0).any() else "host" if row == 0 else TIERS[min(row, 3) - 1]
        for i in range(count):
            first, last = -(-i * len(distinct) // count), -(-(i + 1) * len(distinct) // count) - 1
            label = f"{name} {first}" if first == last else f"{name} {first}–{last}"
            boxes.append((row, label, last - first + 1))
    outside = _leave_servers(graph, tier, unit)
    ends = np.sort(np.stack([box[graph.link_from], box[graph.link_to]]), axis=0)
    crosses = np.nonzero(outside & (ends[0] != ends[1]))[0]
    distinct, index, times = np.unique(ends[0][crosses] * len(boxes) + ends[1][crosses], return_inverse=True, return_counts=True)
    edges = tuple((int(k) // len(boxes), int(k) % len(boxes), int(n) // 2) for k, n in zip(distinct, times, strict=True))
    leaves = np.nonzero(outside)[0]
    return Drawing(tuple(boxes), edges, np.stack([leaves, box[graph.link_from[leaves]]]), np.stack([crosses, index]))


def _leave_servers(graph: Graph, tier: Int64s, unit: Int64s) -> npt.NDArray[np.bool_]:
    """Links that are not inside one server."""
    a, b = graph.link_from, graph.link_to
    outside: npt.NDArray[np.bool_] = (tier[a] > 0) | (tier[b] > 0) | (unit[a] != unit[b])
    return outside
