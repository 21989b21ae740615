"""Columns of a graph while it is being built: blocks of nodes and cables, without an object per link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.engine.graph import Graph, NodeKind

Numbers = float | npt.NDArray[np.float64]


class Columns:
    """Collects nodes, cables and endpoints; `graph()` joins them into columns."""

    def __init__(self) -> None:
        self.count = 0
        self._kind: list[npt.NDArray[np.uint8]] = []
        self._site: list[Int32s] = []
        self._names: list[str] = []
        self._links: list[
            tuple[Int32s, Int32s, npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int16], npt.NDArray[np.uint8]]
        ] = []

    def nodes(self, kind: NodeKind | npt.NDArray[np.uint8], names: Sequence[str], site: int | Int32s = -1) -> Int32s:
        """Adds one node for each name; returns their numbers. `kind` and `site`: one for all, or one each."""
        count = len(names)
        first, self.count = self.count, self.count + count
        self._kind.append(np.broadcast_to(np.asarray(kind, np.uint8), (count,)))
        self._site.append(np.broadcast_to(np.asarray(site, np.int32), (count,)))
        self._names.extend(names)
        return np.arange(first, self.count, dtype=np.int32)

    def cables(
        self,
        a: npt.ArrayLike,
        b: npt.ArrayLike,
        rate: Numbers,
        latency: Numbers,
        axis: int | npt.ArrayLike = -1,
        up: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        """A cable from each of `a` to each of `b` (broadcast together): link a -> b, then b -> a; `rate` B/s each way; `up`
        [cables, 2]: 0 for links that are down."""
        ends = np.broadcast_arrays(np.asarray(a, np.int32), np.asarray(b, np.int32))
        one, two = ends[0].ravel(), ends[1].ravel()
        shape = ends[0].shape
        rates = np.repeat(np.broadcast_to(np.asarray(rate, np.float64), shape).ravel(), 2)
        latencies = np.repeat(np.broadcast_to(np.asarray(latency, np.float64), shape).ravel(), 2)
        axes = np.repeat(np.broadcast_to(np.asarray(axis, np.int16), shape).ravel(), 2)
        works = np.ones(2 * len(one), np.uint8) if up is None else up.ravel()
        self._links.append((_woven(one, two), _woven(two, one), rates, latencies, axes, works))

    def graph(
        self,
        endpoint: npt.ArrayLike,
        nics: npt.ArrayLike | None = None,
        nic_start: npt.ArrayLike | None = None,
        rail: npt.ArrayLike | int = -1,
    ) -> Graph:
        """The graph with `endpoint` [H]; `nics` [H, n], the same number for each, or flat with `nic_start` [H+1]."""
        ends = np.ascontiguousarray(endpoint, np.int32)
        count = len(ends)
        flat = np.zeros(0, np.int32) if nics is None else np.asarray(nics, np.int32)
        start: Int64s
        if nic_start is not None:
            start = np.ascontiguousarray(nic_start, np.int64)
        else:
            start = np.arange(count + 1, dtype=np.int64) * (flat.shape[1] if flat.ndim == 2 else 0)
        columns = [np.concatenate(column) for column in zip(*self._links, strict=True)] if self._links else None
        empty = np.zeros(0)
        source, target, rate, latency, axis, up = columns if columns else (empty,) * 6
        return Graph(
            node_kind=np.concatenate(self._kind) if self._kind else np.zeros(0, np.uint8),
            node_site=np.concatenate(self._site) if self._site else np.zeros(0, np.int32),
            link_from=np.ascontiguousarray(source, np.int32),
            link_to=np.ascontiguousarray(target, np.int32),
            link_rate=np.ascontiguousarray(rate, np.float64),
            link_latency=np.ascontiguousarray(latency, np.float64),
            link_axis=np.ascontiguousarray(axis, np.int16),
            link_up=np.ascontiguousarray(up, np.uint8),
            endpoint=ends,
            nic_start=start,
            nics=np.ascontiguousarray(flat.ravel()),
            rail=np.ascontiguousarray(np.broadcast_to(np.asarray(rail, np.int32), (count,))),
            names=tuple(self._names),
        )


def with_endpoints(graph: Graph, nodes: npt.ArrayLike) -> Graph:
    """The graph with `nodes` as additional endpoints, without NICs and rails."""
    added = np.asarray(nodes, dtype=np.int32)
    return replace(
        graph,
        endpoint=np.concatenate([graph.endpoint, added]),
        rail=np.concatenate([graph.rail, np.full_like(added, -1)]),
        nic_start=np.concatenate([graph.nic_start, np.full(len(added), graph.nic_start[-1], dtype=np.int64)]),
    )


def _woven(a: Int32s, b: Int32s) -> Int32s:
    """a[0], b[0], a[1], b[1], ..."""
    both = np.empty(2 * len(a), np.int32)
    both[0::2], both[1::2] = a, b
    return both


def numbered_names(prefix: str, *sizes: int) -> list[str]:
    """`leaf0`, `leaf1`, ... or `leaf0.0`, `leaf0.1`, ... for more than one size (the last one varies fastest)."""
    names = [f"{prefix}{i}" for i in range(sizes[0])]
    for size in sizes[1:]:
        names = [f"{name}.{i}" for name in names for i in range(size)]
    return names
