"""ECMP collisions: time of a link under hashing over its time under an even spread.

Time under hashing: the bytes of the flows on the link over its rate. Time under an even spread: the larger of two, the bytes that
the link would carry if every switch split every flow evenly over its equal next links, and the longest of its flows alone. So a
single flow on a link is no collision, and neither are two that share an up-link of twice their rate. A factor of 2 means that the
link takes twice as long as under an even spread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats
from windtunnel.engine.graph import Graph, NodeKind, Paths
from windtunnel.engine.routes import RouteOptions, spread

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
