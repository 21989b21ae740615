"""A replayed trace graph as a run, so that it is read like a measured one."""

from __future__ import annotations

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.replay.result import ReplayResult


def run_of_replay(result: ReplayResult, step: int = 0) -> Run:
    """Events of every rank: computation as kernels, calls as calls, host tasks as launches without a kernel. One step, numbered
    `step`, from 0 to the end of the replay on every rank. Tasks that never ended are left out."""
    graph = result.graph
    traces = tuple(_trace(graph, result, index) for index in range(graph.ranks))
    ranks = np.array([trace.rank for trace in traces], np.int32)
    steps = Steps.of(ranks, np.full(len(ranks), step), begin=np.zeros(len(ranks)), seconds=np.full(len(ranks), result.end))
    return Run(steps, traces, {}, "replay")


def _trace(graph: TraceGraph, result: ReplayResult, index: int) -> RankTrace:
    rows = np.arange(int(graph.rank_start[index]), int(graph.rank_start[index + 1]))
    kinds = graph.kind[rows]
    rows = rows[
        (kinds != TaskKind.MARK) & np.isfinite(result.times.end[rows]) & (result.times.end[rows] > result.times.start[rows])
    ]
    rows = rows[np.argsort(result.times.start[rows], kind="stable")]
    kinds, host = graph.kind[rows], graph.on_host[rows]
    calls = np.isin(kinds, (TaskKind.COLLECTIVE, TaskKind.SEND, TaskKind.RECEIVE))
    copies = np.isin(kinds, (TaskKind.LOAD, TaskKind.STORE))
    kind = np.select([host, calls, copies], [EventKind.LAUNCH, EventKind.CALL, EventKind.COPY], EventKind.KERNEL).astype(np.uint8)
    own = int(graph.numbers[index])
    messages = np.isin(kinds, (TaskKind.SEND, TaskKind.RECEIVE))
    comm = np.where(messages, int(Comm.SEND_RECV), graph.comm[rows]).astype(np.uint8)
    groups, group, sequence = _groups(graph, rows, kinds, own)
    none = np.full(len(rows), -1, np.int64)
    events = Events(
        kind, graph.name[rows], np.maximum(graph.lane[rows], 0), result.times.start[rows],
        result.times.end[rows] - result.times.start[rows], none, none, np.where(calls, comm, 0).astype(np.uint8),
        np.where(calls, graph.bytes[rows], np.nan), group, sequence, np.full(len(rows), -1, np.int32), graph.names, groups,
        ("",) * len(groups),
    )  # fmt: skip
    return RankTrace(own, events, world=int(graph.numbers.max()) + 1, source="replay")


def _groups(
    graph: TraceGraph, rows: np.ndarray, kinds: np.ndarray, own: int
) -> tuple[tuple[tuple[int, ...], ...], np.ndarray, np.ndarray]:
    """The groups of calls, a pair of ranks for messages; messages of a pair are numbered by their tag."""
    numbers: dict[tuple[int, ...], int] = {}
    group, sequence = np.full(len(rows), -1, np.int32), np.full(len(rows), -1, np.int64)
    for at, (row, kind) in enumerate(zip(rows.tolist(), kinds.tolist(), strict=True)):
        if kind in (TaskKind.SEND, TaskKind.RECEIVE):
            peer = int(graph.peer[row])
            ends = (own, peer) if kind == TaskKind.SEND else (peer, own)
            group[at] = numbers.setdefault(ends, len(numbers))
            sequence[at] = int(graph.tag[row])
        elif kind == TaskKind.COLLECTIVE and graph.group[row] >= 0:
            group[at] = numbers.setdefault(graph.groups[int(graph.group[row])], len(numbers))
    return tuple(numbers), group, sequence
