"""What a replay says: when ranks end, what their time went to, and the chain that set the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Bools, Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.dag import TaskTimes
from windtunnel.records.trace_graph import TaskKind, TraceGraph

MOVES = (TaskKind.COLLECTIVE, TaskKind.SEND, TaskKind.RECEIVE)
MOST_STRETCHES = 12
"""Names of the critical chain that are listed."""


@dataclass(frozen=True)
class ChainPart:
    """Seconds of the critical chain that tasks of one name took, and how many of them it has."""

    name: str
    kind: str
    seconds: float
    count: int


@dataclass(frozen=True)
class ReplayResult:
    """A replayed graph; `seconds` [N] is what each task takes alone. `stuck` says what never ended, `assumed` what was filled
    in."""

    graph: TraceGraph
    times: TaskTimes
    network: str
    assumed: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()

    @property
    def end(self) -> float:
        """Seconds until the last task has ended."""
        return float(np.nan_to_num(self.times.end).max(initial=0.0))

    @cached_property
    def rank_end(self) -> Floats:
        """[R]"""
        ends = np.zeros(self.graph.ranks)
        np.maximum.at(ends, self.graph.rank_of(), np.nan_to_num(self.times.end))
        return ends

    @cached_property
    def busy(self) -> dict[str, Floats]:
        """Seconds [R] in which each kind of task ran, each task counted; `host` is what ran on the CPU, `wait` the part of calls
        before the last participant came."""
        graph, rank = self.graph, self.graph.rank_of()
        lasted = np.nan_to_num(self.times.end - self.times.start)
        out: dict[str, Floats] = {}
        for kind in TaskKind:
            here = (graph.kind == kind) & ~graph.on_host
            if here.any() and kind is not TaskKind.MARK:
                out[kind.name.lower()] = np.bincount(rank[here], lasted[here], graph.ranks).astype(np.float64)
        if graph.on_host.any():
            out["host"] = np.bincount(rank[graph.on_host], lasted[graph.on_host], graph.ranks).astype(np.float64)
        waits = np.nan_to_num(self.times.begin - self.times.start)
        if waits.any():
            out["wait"] = np.bincount(rank, waits, graph.ranks).astype(np.float64)
        return out

    @cached_property
    def exposed(self) -> Floats:
        """Seconds [R] in which a call was in flight and the device computed nothing."""
        device = ~self.graph.on_host & np.isfinite(self.times.end)
        calls = device & np.isin(self.graph.kind, MOVES)
        computes = device & (self.graph.kind == TaskKind.COMPUTE)
        out = np.zeros(self.graph.ranks)
        for rank in range(self.graph.ranks):
            here = slice(int(self.graph.rank_start[rank]), int(self.graph.rank_start[rank + 1]))
            out[rank] = self._covered_seconds(here, calls[here] | computes[here]) - self._covered_seconds(here, computes[here])
        return out

    def _covered_seconds(self, here: slice, which: Bools) -> float:
        """Length of the union of the intervals of tasks."""
        start, end = self.times.start[here][which], self.times.end[here][which]
        order = np.argsort(start)
        start, end = start[order], np.maximum.accumulate(end[order]) if len(order) else end
        gaps = np.maximum(0.0, start[1:] - end[:-1]).sum() if len(start) > 1 else 0.0
        return float(end[-1] - start[0] - gaps) if len(start) else 0.0

    def chain(self) -> Iterator[tuple[int, float]]:
        """(task, seconds) of the critical chain from its end back to the start; the seconds add up to `end`."""
        times = self.times
        if not len(times.end) or not np.isfinite(times.end).any():
            return
        at, until = int(np.nanargmax(times.end)), self.end
        while at >= 0:
            since = times.start[at]
            if times.last[at] >= 0:
                since = max(times.begin[at], since) if times.last[at] == at else times.begin[at]
                yield at, until - since
                at = int(times.last[at])
            else:
                yield at, until - since
            until = since
            at = int(times.cause[at])

    @cached_property
    def critical(self) -> tuple[ChainPart, ...]:
        """The critical chain by names, the longest first."""
        seconds: Counter[tuple[str, str]] = Counter()
        count: Counter[tuple[str, str]] = Counter()
        for at, lasted in self.chain():
            kind = "host" if self.graph.on_host[at] else TaskKind(int(self.graph.kind[at])).name.lower()
            key = (self.graph.names[int(self.graph.name[at])], kind)
            seconds[key] += lasted  # type: ignore[assignment]
            count[key] += 1
        parts = [ChainPart(name, kind, float(lasted), count[name, kind]) for (name, kind), lasted in seconds.items() if lasted > 0]
        return tuple(sorted(parts, key=lambda part: (-part.seconds, part.name)))

    def as_dict(self) -> dict[str, object]:
        """JSON: stable keys, SI units."""
        return {
            "schema": "windtunnel.replay/1",
            "network": self.network,
            "ranks": self.graph.ranks,
            "tasks": len(self.graph),
            "done": self.times.done,
            "end_s": self.end,
            "rank": self.graph.numbers.tolist(),
            "rank_end_s": self.rank_end.tolist(),
            "busy_s": {kind: seconds.tolist() for kind, seconds in self.busy.items()},
            "exposed_communication_s": self.exposed.tolist(),
            "critical": [vars(part) for part in self.critical[:MOST_STRETCHES]],
            "assumed": list(self.assumed),
            "stuck": list(self.stuck),
        }
