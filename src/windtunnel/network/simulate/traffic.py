"""Traffic of a run: bytes and load by level of the fabric, the hottest links and what fills them, and a drawing.

Where a fabric's links lie in its drawing: rows of boxes for servers and for tiers of switches, and edges between them.

ECMP collisions: time of a link under hashing over its time under an even spread.

Time under hashing: the bytes of the flows on the link over its rate. Time under an even spread: the larger of two, the bytes that
the link would carry if every switch split every flow evenly over its equal next links, and the longest of its flows alone. So a
single flow on a link is no collision, and neither are two that share an up-link of twice their rate. A factor of 2 means that the
link takes twice as long as under an even spread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.engine.graph import Graph, NodeKind, Paths
from windtunnel.engine.loads import LinkLoads, Sent
from windtunnel.engine.routes import RouteOptions, spread

_INSIDE = {
    NodeKind.HOST: "host",
    NodeKind.GPU: "GPU",
    NodeKind.NIC: "NIC",
    NodeKind.PCIE: "PCIe switch",
    NodeKind.CPU: "CPU",
    NodeKind.NVSWITCH: "NVSwitch",
}
FLOW_CONTROL = "pauses and credits"
"""What fills links without being of any call."""


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
class CallShare:
    """A call's share of a link's bytes."""

    name: str
    share: float


@dataclass(frozen=True)
class HotLink:
    """One link: bytes moved, utilisation over the run, and the share of the run in which it was full (if the engine reports it).
    `level`: the name of its level; `calls`: what fills it, the most first; shares add up to 1 where they are known."""

    link: int
    name: str
    rate: float
    bytes: float
    utilisation: float
    full: float | None = None
    level: str = ""
    calls: tuple[CallShare, ...] = ()


Rows = tuple[tuple[float, ...], ...]
"""A row for each level, link, box or edge; a column for each bin."""


@dataclass(frozen=True)
class LoadOverTime:
    """Load in bins of `width` seconds from the begin of the run on. Rows are in the order of the traffic's levels, hot links, boxes
    and edges. Utilisation is bytes over rate x width, so that of the last bin, which the run may end in, too.

    `mean`, `fullest`: utilisation of each level's links; `hot`: of hot links, `hot_bytes` their bytes; `queue`, `hot_queue`: most
    bytes that waited for a link of the level, and for the hot link (empty for fluids); `boxes`, `edges`: of their fullest link.
    `note`: what is exact.
    """

    width: float
    mean: Rows
    fullest: Rows
    hot: Rows
    hot_bytes: Rows
    queue: Rows = ()
    hot_queue: Rows = ()
    boxes: Rows = ()
    edges: Rows = ()
    note: str = ""


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
    over_time: LoadOverTime | None = None
    """Where it was asked for."""


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
    *,
    sent: Sent | Callable[[Int64s], Sent] | None = None,
    names: Sequence[str] = (),
    loads: LinkLoads | None = None,
    note: str = "",
) -> Traffic:
    """Traffic from `link_bytes` [L] moved in `seconds`; `full` [L]: seconds in which a link was full.

    `sent`: bytes by link and number of a call (or a function of the links wanted), with the `names` of these; calls of one name are
    one. `loads`: the links over time, and in a `note` what of it is exact. Hot links: the `most` hottest, and each level's fullest.
    """
    load = link_bytes / (graph.link_rate * seconds) if seconds > 0.0 else np.zeros(graph.links)
    tier = tiers(graph)
    groups = _groups(graph, tier, link_bytes)
    hot = _hot(graph, load, link_bytes, groups, most)
    fills = _fills(hot, sent(hot) if callable(sent) else sent, names)
    level_of = {int(i): name for name, links in groups for i in np.intersect1d(links, hot)}
    hot_links = tuple(
        HotLink(i, link_name(graph, i), float(graph.link_rate[i]), float(link_bytes[i]), float(load[i]),
                None if full is None else float(full[i] / seconds), level_of[i], fills.get(i, ()))
        for i in hot.tolist()
    )  # fmt: skip
    drawing = draw(graph, tier)
    of_boxes, of_edges = drawing.fullest(load)
    boxes = tuple(Box(*box, float(of_boxes[i])) for i, box in enumerate(drawing.boxes))
    edges = tuple(Edge(*edge, float(of_edges[i])) for i, edge in enumerate(drawing.edges))
    levels = tuple(
        Level(name, len(at), float(graph.link_rate[at].min()), float(link_bytes[at].sum()), float(load[at].mean()),
              float(load[at].max()))
        for name, at in groups
    )  # fmt: skip
    switches = int(((graph.node_kind == NodeKind.SWITCH) & (graph.node_site < 0)).sum())
    return Traffic(
        engine, seconds, graph.endpoints, switches, graph.links, levels, hot_links, dict(collisions or {}), dict(events or {}),
        slowest, (), boxes, edges, None if loads is None else _over_time(graph, loads, groups, hot, drawing, note),
    )  # fmt: skip


Groups = list[tuple[str, Int64s]]
"""Levels that carried something: their names and links."""


def _hot(graph: Graph, load: Floats, link_bytes: Floats, groups: Groups, most: int) -> Int64s:
    """The hottest links, the hottest first; those that rounding alone tells apart by their number."""
    load = np.round(load, 9)
    order = np.lexsort((np.arange(graph.links), -load))
    first = [int(at[np.argmax(load[at])]) for _, at in groups]
    chosen = np.zeros(graph.links, np.bool_)
    chosen[order[:most]] = chosen[first] = True
    hot: Int64s = order[chosen[order] & (link_bytes[order] > 0.0)]
    return hot


def _fills(hot: Int64s, sent: Sent | None, names: Sequence[str]) -> dict[int, tuple[CallShare, ...]]:
    """What fills each of these links."""
    if sent is None:
        return {}
    by_link: dict[int, dict[str, float]] = {}
    at = np.isin(sent.link, hot) & (sent.bytes > 0)
    for link, tag, moved in zip(sent.link[at].tolist(), sent.tag[at].tolist(), sent.bytes[at].tolist(), strict=True):
        name = names[tag] if tag >= 0 else FLOW_CONTROL
        of_link = by_link.setdefault(link, {})
        of_link[name] = of_link.get(name, 0.0) + moved
    fills = {}
    for link, of_link in by_link.items():
        total = sum(of_link.values())
        ordered = sorted(of_link.items(), key=lambda item: (-item[1], item[0]))
        fills[link] = tuple(CallShare(name, moved / total) for name, moved in ordered)
    return fills


def _over_time(graph: Graph, loads: LinkLoads, groups: Groups, hot: Int64s, drawing: Drawing, note: str) -> LoadOverTime:
    hot_bytes, of_links = loads.bytes_of(hot), np.arange(graph.links)
    mean, fullest, boxes, edges = [], [], [], []
    for part in range(loads.bins):  # bin by bin: links x bins would not fit for a large fabric
        load = loads.bin_bytes(part, of_links) / (graph.link_rate * loads.width)
        mean.append([float(load[at].mean()) for _, at in groups])
        fullest.append([float(load[at].max()) for _, at in groups])
        of_boxes, of_edges = drawing.fullest(load)
        boxes.append(of_boxes.tolist())
        edges.append(of_edges.tolist())
    queue: Rows = ()
    hot_queue: Rows = ()
    if loads.queue is not None:
        queue = tuple(tuple(loads.queue_of(at).max(axis=0).tolist()) for _, at in groups)
        hot_queue = _as_rows(loads.queue_of(hot))
    return LoadOverTime(
        loads.width, _transpose(mean), _transpose(fullest), _as_rows(hot_bytes / (graph.link_rate[hot, None] * loads.width)),
        _as_rows(hot_bytes), queue, hot_queue, _transpose(boxes), _transpose(edges), note,
    )  # fmt: skip


def _transpose(columns: Sequence[Sequence[float]]) -> Rows:
    return tuple(zip(*columns, strict=True))


def _as_rows(table: Floats) -> Rows:
    return tuple(tuple(row) for row in table.tolist())


def _kinds(graph: Graph, tier: Int64s) -> tuple[Int64s, list[str]]:
    """A class for each node [N], and the classes' names: kinds inside servers, tiers of switches outside."""
    inside = (graph.node_site >= 0) | (graph.node_kind != NodeKind.SWITCH)
    code = np.where(inside, graph.node_kind.astype(np.int64), len(NodeKind) + tier)
    names = [_INSIDE.get(kind, "switch") for kind in NodeKind] + ["switch"]
    top = int(tier.max())
    names += [TIERS[t] if top <= len(TIERS) else f"tier {t + 1}" for t in range(top)]
    return code, names


def _groups(graph: Graph, tier: Int64s, link_bytes: Floats) -> Groups:
    code, names = _kinds(graph, tier)
    pair = code[graph.link_from] * len(names) + code[graph.link_to]
    groups = []
    for value in np.unique(pair):
        at = np.nonzero(pair == value)[0]
        if link_bytes[at].any():
            groups.append((f"{names[value // len(names)]} → {names[value % len(names)]}", at))
    return groups


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


EDGES = (0.5, 0.9, 1.1, 1.5, 2.0, 3.0)
"""Bounds of the histogram's bins; below the first and above the last are bins too."""


@dataclass(frozen=True)
class Collisions:
    """Flows of each link over those of an even spread. A factor below 1 is less than the even share."""

    links: int
    """Number of links on which flows could fall, except a host's or NIC's only link."""
    worst_link: int
    """The link with the highest factor."""
    worst_factor: float
    """Its factor."""
    mean_factor: float
    """Mean of the factor over bytes."""
    worst_flows: int
    """Flows on the worst link."""
    worst_flows_even: float
    """Flows that an even spread would put on it."""
    histogram: tuple[int, ...]
    """Number of links by factor, in the bins of EDGES."""


def loads(graph: Graph, paths: Paths, weight: npt.ArrayLike) -> Floats:
    """[L] sum of `weight` [P] of the paths over each link."""
    weights = np.repeat(np.asarray(weight, np.float64), np.diff(paths.start))
    return np.bincount(paths.links, weights, minlength=graph.links).astype(np.float64, copy=False)


def seconds_alone(graph: Graph, paths: Paths, bytes: npt.ArrayLike) -> Floats:
    """[P] seconds of the bytes on each path's slowest link; 0 for an empty path."""
    slowest = np.full(len(paths), np.inf)
    used = np.diff(paths.start) > 0
    if used.any():  # empty paths have no entries, so the starts of the others cut the entries without a gap
        slowest[used] = np.minimum.reduceat(graph.link_rate[paths.links], paths.start[:-1][used])
    return np.asarray(np.asarray(bytes, np.float64) / slowest)


def collisions(
    graph: Graph,
    paths: Paths,
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    bytes: npt.ArrayLike,
    options: RouteOptions | None = None,
) -> Collisions:
    """Collisions of flows on their `paths` (those of `route` with the same arguments), as if all flows ran at the same time."""
    even = spread(graph, src, dst, bytes, options=options)
    bytes_of_link = loads(graph, paths, bytes)
    flows = np.bincount(paths.links, minlength=graph.links)
    sizes = np.asarray(bytes, np.float64)
    same = len(sizes) > 0 and sizes[0] > 0 and bool((sizes == sizes[0]).all())
    even_flows = even / sizes[0] if same else spread(graph, src, dst, np.ones(len(paths)), options=options)
    longest = np.zeros(graph.links)
    np.maximum.at(longest, paths.links, np.repeat(seconds_alone(graph, paths, bytes), np.diff(paths.start)))
    needed = np.maximum(even / graph.link_rate, longest)
    chosen = choosable(graph) & (needed > 0.0)
    if not chosen.any():
        return Collisions(0, -1, 1.0, 1.0, 0, 0.0, (0,) * (len(EDGES) + 1))
    factor = np.divide(bytes_of_link / graph.link_rate, needed, out=np.ones(graph.links), where=chosen)
    worst = int(np.argmax(np.where(chosen, factor, -1.0)))
    mean = float((factor * bytes_of_link)[chosen].sum() / bytes_of_link[chosen].sum()) if bytes_of_link[chosen].sum() > 0 else 1.0
    bins = np.histogram(factor[chosen], bins=[0.0, *EDGES, np.inf])[0]
    return Collisions(
        int(chosen.sum()), worst, float(factor[worst]), mean, int(flows[worst]), float(even_flows[worst]), tuple(bins.tolist())
    )


def choosable(graph: Graph) -> npt.NDArray[np.bool_]:
    """[L] links on the fabric but for those that are a host's or NIC's only one."""
    a, b = graph.link_from, graph.link_to
    fabric = (graph.node_site[a] < 0) | (graph.node_site[a] != graph.node_site[b])
    up = fabric & (graph.link_up > 0)
    end = (graph.node_site >= 0) | np.isin(graph.node_kind, (NodeKind.HOST, NodeKind.NIC))
    only_out = end & (np.bincount(a[up], minlength=graph.nodes) < 2)
    only_in = end & (np.bincount(b[up], minlength=graph.nodes) < 2)
    return np.asarray(up & ~only_out[a] & ~only_in[b])
