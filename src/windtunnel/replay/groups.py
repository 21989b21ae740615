"""Groups that a trace graph talks over, and the shapes that they have on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.network.groups.shape import Group, shape_of
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.spec.machine.cluster import Cluster


@dataclass(frozen=True)
class PlacedGraph:
    """A trace graph's groups on a cluster: rank n sits on GPU n."""

    graph: TraceGraph
    cluster: Cluster

    def __post_init__(self) -> None:
        most = max((max(ranks) for ranks in self.graph.groups if ranks), default=0)
        most = max(most, int(self.graph.numbers.max(initial=0)), int(self.graph.peer.max(initial=0)))
        least = min((min(ranks) for ranks in self.graph.groups if ranks), default=0)
        if (least := min(least, int(self.graph.numbers.min(initial=0)))) < 0:
            raise SpecError("TRACE", f"a rank {least}", "ranks from 0 on")
        if most >= self.cluster.gpus:
            raise SpecError(
                "cluster.gpus", self.cluster.gpus, f"{most + 1} or more: the trace has a rank {most}", "Write --set gpus=N."
            )

    def rows(self, group: int) -> Int64s:
        """The groups [groups, ranks] that do the same at the same time as this one: those of the graph whose ranks lie alike."""
        return self._families[self._pattern(self.graph.groups[group])]

    def group_by_itself(self, group: int) -> Int64s:
        """The group by itself [1, ranks]."""
        return np.array([sorted(self.graph.groups[group])], np.int64)

    def shape(self, group: int) -> Group:
        """Shape of a group, with what groups like it share."""
        return shape_of(self.cluster, self.rows(group))

    def pairs(self, src: int, dst: int) -> Int64s:
        """(sender, receiver) of messages that go as far as this one [pairs, 2]: those of the graph, and its groups of two."""
        rows = self._distances[dst - src]
        like = self._families.get((0, abs(dst - src)))
        if like is None:
            return rows
        return np.unique(np.concatenate([rows, like if dst > src else like[:, ::-1]]), axis=0)

    @cached_property
    def has_all_ranks(self) -> bool:
        """Whether the graph holds every rank that its groups name."""
        named = {rank for ranks in self.graph.groups for rank in ranks}
        return named <= set(self.graph.numbers.tolist())

    @staticmethod
    def _pattern(ranks: tuple[int, ...]) -> tuple[int, ...]:
        first = min(ranks)
        return tuple(sorted(rank - first for rank in ranks))

    @cached_property
    def _families(self) -> dict[tuple[int, ...], Int64s]:
        families: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for ranks in self.graph.groups:
            families.setdefault(self._pattern(ranks), set()).add(tuple(sorted(ranks)))
        return {pattern: np.array(sorted(rows), np.int64) for pattern, rows in families.items()}

    @cached_property
    def _distances(self) -> dict[int, Int64s]:
        graph = self.graph
        message = (graph.kind == TaskKind.SEND) | (graph.kind == TaskKind.RECEIVE)
        at = np.nonzero(message & (graph.peer >= 0))[0]  # a receive may take what comes from anyone
        own, peer = graph.numbers[graph.rank_of()[at]], graph.peer[at].astype(np.int64)
        sends = graph.kind[at] == TaskKind.SEND
        pairs = np.unique(np.stack([np.where(sends, own, peer), np.where(sends, peer, own)], axis=1), axis=0)
        apart = pairs[:, 1] - pairs[:, 0]
        return {int(step): pairs[apart == step] for step in np.unique(apart)}
