"""Traffic of a run: bytes and load by level of the fabric, the hottest links, and boxes and edges for a drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.engine.graph import Graph, NodeKind

MOST_BOXES = 48
"""Maximum of boxes in one row of the drawing; neighbouring nodes share a box if there are more nodes."""

_INSIDE = {
    NodeKind.HOST: "host",
    NodeKind.GPU: "GPU",
    NodeKind.NIC: "NIC",
    NodeKind.PCIE: "PCIe switch",
    NodeKind.CPU: "CPU",
    NodeKind.NVSWITCH: "NVSwitch",
}
_TIERS = ("leaf", "spine", "core")


@dataclass(frozen=True)
class Level:
    """All links from one kind of node to another. `utilisation` is bytes over capacity x time, mean and of the fullest link."""

    name: str
    links: int
    rate: float  # B/s of the slowest of them
    bytes: float
    mean_utilisation: float
    max_utilisation: float


@dataclass(frozen=True)
class HotLink:
    """One link: bytes moved, utilisation over the run, and the share of the run in which it was full (if the engine reports it)."""

    link: int
    name: str
    rate: float
    bytes: float
    utilisation: float
    full: float | None = None


@dataclass(frozen=True)
class Box:
    """Nodes of one row of the drawing (0: servers, then leaves, spines, cores); `load`: that of the fullest link that leaves
    them."""

    row: int
    label: str
    nodes: int
    load: float


@dataclass(frozen=True)
class Edge:
    """Links between two boxes (indices), both directions: number of cables, utilisation of the fullest direction of any."""

    low: int
    high: int
    cables: int
    load: float


@dataclass(frozen=True)
class Traffic:
    """Links after a run of `seconds`. `events`: counters of congestion control and flow control (empty for fluid runs);
    `slowest`: the transfers that contention slowed most: label, number of runs, seconds, factor over its time without other
    traffic."""

    engine: str
    seconds: float
    endpoints: int
    switches: int
    links: int
    levels: tuple[Level, ...]
    hot: tuple[HotLink, ...]
    collisions: Mapping[str, float] = field(default_factory=dict)
    events: Mapping[str, float] = field(default_factory=dict)
    slowest: tuple[Mapping[str, object], ...] = ()
    formula: tuple[str, ...] = ()
    """What moved bytes without meeting others: priced by formula, its bytes not on the links."""
    boxes: tuple[Box, ...] = ()
    edges: tuple[Edge, ...] = ()


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


def node_name(graph: Graph, node: int) -> str:
    """Label of a node."""
    return graph.names[node] if graph.names else f"{_INSIDE.get(NodeKind(int(graph.node_kind[node])), 'switch')} {node}"


def link_name(graph: Graph, link: int) -> str:
    """Label of a link: its two nodes."""
    return f"{node_name(graph, int(graph.link_from[link]))} → {node_name(graph, int(graph.link_to[link]))}"


def traffic(
    graph: Graph,
    engine: str,
    link_bytes: Floats,
    seconds: float,
    full: Floats | None = None,
    collisions: Mapping[str, float] | None = None,
    events: Mapping[str, float] | None = None,
    slowest: tuple[Mapping[str, object], ...] = (),
    most: int = 20,
) -> Traffic:
    """Traffic from `link_bytes` [L] moved in `seconds`; `full` [L]: seconds in which a link was full."""
    load = link_bytes / (graph.link_rate * seconds) if seconds > 0.0 else np.zeros(graph.links)
    tier = tiers(graph)
    order = np.lexsort((np.arange(graph.links), -load))[:most]
    hot = tuple(
        HotLink(int(i), link_name(graph, int(i)), float(graph.link_rate[i]), float(link_bytes[i]), float(load[i]),
                None if full is None else float(full[i] / seconds))
        for i in order if link_bytes[i] > 0.0
    )  # fmt: skip
    boxes, edges = _drawing(graph, tier, load)
    return Traffic(
        engine, seconds, graph.endpoints, int(((graph.node_kind == NodeKind.SWITCH) & (graph.node_site < 0)).sum()), graph.links,
        _levels(graph, tier, link_bytes, load), hot, dict(collisions or {}), dict(events or {}), slowest, (), boxes, edges,
    )  # fmt: skip


def _kinds(graph: Graph, tier: Int64s) -> tuple[Int64s, list[str]]:
    """A class for each node [N], and the classes' names: kinds inside servers, tiers of switches outside."""
    inside = (graph.node_site >= 0) | (graph.node_kind != NodeKind.SWITCH)
    code = np.where(inside, graph.node_kind.astype(np.int64), len(NodeKind) + tier)
    names = [_INSIDE.get(kind, "switch") for kind in NodeKind] + ["switch"]
    top = int(tier.max())
    names += [_TIERS[t] if top <= len(_TIERS) else f"tier {t + 1}" for t in range(top)]
    return code, names


def _levels(graph: Graph, tier: Int64s, link_bytes: Floats, load: Floats) -> tuple[Level, ...]:
    code, names = _kinds(graph, tier)
    pair = code[graph.link_from] * len(names) + code[graph.link_to]
    levels = []
    for value in np.unique(pair):
        at = pair == value
        if link_bytes[at].any():
            name = f"{names[value // len(names)]} → {names[value % len(names)]}"
            rate = float(graph.link_rate[at].min())
            moved = float(link_bytes[at].sum())
            levels.append(Level(name, int(at.sum()), rate, moved, float(load[at].mean()), float(load[at].max())))
    return tuple(levels)


def _drawing(graph: Graph, tier: Int64s, load: Floats) -> tuple[tuple[Box, ...], tuple[Edge, ...]]:
    """Servers, or endpoints of a plain fabric, as the lowest row, then a row for each tier of switches; no links inside servers."""
    unit = np.where(graph.node_site >= 0, graph.node_site, -1).astype(np.int64)
    lone = (tier == 0) & (unit < 0)
    unit[lone] = (int(unit.max()) + 1) + np.arange(int(lone.sum()))
    box = np.full(graph.nodes, -1, np.int64)
    boxes: list[Box] = []
    outward = _max_at(graph.nodes, graph.link_from, np.where(_leaves(graph, tier, unit), load, 0.0))
    for row in range(int(tier.max()) + 1):
        nodes = np.nonzero(tier == row)[0]
        members = unit[nodes] if row == 0 else np.arange(len(nodes))
        distinct, index = np.unique(members, return_inverse=True)
        count = min(len(distinct), MOST_BOXES)
        place = index * count // max(1, len(distinct))
        box[nodes] = len(boxes) + place
        name = "server" if row == 0 and (graph.node_site >= 0).any() else "host" if row == 0 else _TIERS[min(row, 3) - 1]
        for i in range(count):
            first, last = -(-i * len(distinct) // count), -(-(i + 1) * len(distinct) // count) - 1
            label = f"{name} {first}" if first == last else f"{name} {first}–{last}"
            boxes.append(Box(row, label, last - first + 1, float(outward[nodes[place == i]].max())))
    ends = np.sort(np.stack([box[graph.link_from], box[graph.link_to]]), axis=0)
    crosses = _leaves(graph, tier, unit) & (ends[0] != ends[1])
    key = ends[0][crosses] * len(boxes) + ends[1][crosses]
    distinct, index, times = np.unique(key, return_inverse=True, return_counts=True)
    most = _max_at(len(distinct), index, load[crosses])
    edges = tuple(
        Edge(int(k) // len(boxes), int(k) % len(boxes), int(n) // 2, float(most[i]))
        for i, (k, n) in enumerate(zip(distinct, times, strict=True))
    )
    return tuple(boxes), edges


def _leaves(graph: Graph, tier: Int64s, unit: Int64s) -> npt.NDArray[np.bool_]:
    """Links that are not inside one server."""
    a, b = graph.link_from, graph.link_to
    outside: npt.NDArray[np.bool_] = (tier[a] > 0) | (tier[b] > 0) | (unit[a] != unit[b])
    return outside


def _max_at(size: int, index: npt.NDArray[np.integer], values: Floats) -> Floats:
    out = np.zeros(size)
    np.maximum.at(out, index, values)
    return out
