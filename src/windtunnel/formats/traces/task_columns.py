"""A trace graph written task by task, rank by rank."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from windtunnel.records.trace_graph import TaskKind, TraceGraph

NAN = float("nan")


class TaskColumns:
    """Columns that grow; `rank` begins the tasks of the next rank, `add` returns the number of a task in the whole graph."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ranks: list[int] = []
        self.names: dict[str, int] = {}
        self.groups: dict[tuple[int, ...], int] = {}
        self.name, self.kind, self.host = array("i"), array("B"), array("B")
        self.lane, self.seconds, self.bytes = array("i"), array("d"), array("d")
        self.comm, self.group, self.peer, self.tag = array("B"), array("i"), array("i"), array("q")
        self.dep_start, self.deps = array("q", [0]), array("q")

    def __len__(self) -> int:
        return len(self.name)

    def rank(self, number: int) -> None:
        """Begins the tasks of a rank."""
        self.starts.append(len(self))
        self.ranks.append(number)

    def group_of(self, ranks: Sequence[int]) -> int:
        """The number of a group."""
        return self.groups.setdefault(tuple(ranks), len(self.groups))

    def add(
        self, name: str, kind: TaskKind, seconds: float = NAN, size: float = NAN, comm: int = 0, group: int = -1, peer: int = -1,
        tag: int = 0, lane: int = -1, deps: Iterable[int] = (), host: bool = False,
    ) -> int:  # fmt: skip
        """A task: columns of `records.TraceGraph`."""
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.kind.append(kind)
        self.host.append(host)
        self.lane.append(lane)
        self.seconds.append(seconds)
        self.bytes.append(size)
        self.comm.append(comm)
        self.group.append(group)
        self.peer.append(peer)
        self.tag.append(tag)
        self.deps.extend(deps)
        self.dep_start.append(len(self.deps))
        return len(self) - 1

    def graph(self) -> TraceGraph:
        """The finished graph."""
        count = len(self)
        return TraceGraph(
            rank_start=np.array([*self.starts, count], np.int64), rank_ids=np.array(self.ranks, np.int64),
            name=np.array(self.name, np.int32), kind=np.array(self.kind, np.uint8), on_host=np.array(self.host, np.bool_),
            lane=np.array(self.lane, np.int32), seconds=np.array(self.seconds, np.float64), flops=np.full(count, np.nan),
            bytes=np.array(self.bytes, np.float64), comm=np.array(self.comm, np.uint8), group=np.array(self.group, np.int32),
            peer=np.array(self.peer, np.int32), tag=np.array(self.tag, np.int64), dep_start=np.array(self.dep_start, np.int64),
            deps=np.array(self.deps, np.int64), names=tuple(self.names), groups=tuple(self.groups),
        )  # fmt: skip
