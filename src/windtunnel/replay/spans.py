"""The timeline of a replay as spans, for trace viewers: a process for each rank, a track for each stream and kind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windtunnel.predict.prediction import Span
from windtunnel.records.trace_graph import TaskKind
from windtunnel.replay.result import ReplayResult


def spans_of(result: ReplayResult) -> Iterator[Span]:
    """A span for each task that ran and took time."""
    graph, times = result.graph, result.times
    ranks = graph.rank_of().tolist()
    for at in np.nonzero(times.end > times.start)[0].tolist():
        kind = "host" if graph.on_host[at] else TaskKind(int(graph.kind[at])).name.lower()
        lane = int(graph.lane[at])
        track = kind if lane < 0 else f"host thread {lane}" if graph.on_host[at] else f"stream {lane}"
        yield Span(ranks[at], track, graph.names[int(graph.name[at])], kind, float(times.start[at]), float(times.end[at]))
