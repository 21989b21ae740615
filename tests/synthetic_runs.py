"""Runs whose causes are known: a prediction with changed factors and noise, to judge comparison and calibration by."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.replay.result import ReplayResult
from windtunnel.runs.causes import with_factor
from windtunnel.runs.expected import expected_run
from windtunnel.spec import Job


def with_known_factor(job: Job, path: str, value: float, steps: int = 4, sigma: float = 0.02, seed: int = 0) -> Run:
    """A run of the job with one factor of its calibration changed. Each kernel and each call of each step has a length of its own:
    lognormal with mean 1 and standard deviation `sigma`; launches vary likewise."""
    return noisy(expected_run(with_factor(job, path, value)), steps, sigma, seed)


def with_slow_tasks(job: Job, graph: TraceGraph, rank: int | None = None, group: int | None = None, value: float = 2.0) -> Run:
    """A run of all ranks in `graph` (`graph_of_job`) in which the kernels of one rank, or the calls of one group, take `value`
    times as long."""
    from windtunnel.replay.options import ReplayOptions
    from windtunnel.replay.run import replay

    seconds = graph.seconds.copy()
    if rank is not None:
        seconds[(graph.numbers[graph.rank_of()] == rank) & (graph.kind == TaskKind.COMPUTE) & ~graph.on_host] *= value
    if group is not None:
        seconds[(graph.group == group) & (graph.kind == TaskKind.COLLECTIVE)] *= value
    return run_of_replay(replay(replace(graph, seconds=seconds), job.cluster, ReplayOptions(calls="trace")))


def graph_of_job(job: Job) -> TraceGraph:
    """The predicted step of a job as tasks of all its ranks."""
    from windtunnel.exports.exporters import exporter_of, save
    from windtunnel.formats.door import read_files

    with tempfile.TemporaryDirectory() as folder:
        save(exporter_of("chakra").export(job, {"ranks": "all"}), Path(folder))
        graph: TraceGraph = read_files([folder]).value
    return graph


def noisy(run: Run, steps: int, sigma: float, seed: int) -> Run:
    """A run of one step, repeated with noise on every length."""
    draw = np.random.default_rng(seed)
    length = float(np.nanmax(run.steps.seconds)) * 1.05
    ranks = tuple(_repeated(trace, steps, length, sigma, draw) for trace in run.ranks)
    of_step = np.repeat(np.arange(steps), len(run.ranks))
    seconds = np.tile(run.steps.seconds, steps) * np.repeat(draw.normal(1.0, sigma / 4.0, steps), len(run.ranks))
    lines = Steps.of(np.tile(run.steps.rank, steps), of_step, begin=of_step * length, seconds=seconds)
    return replace(run, ranks=ranks, steps=lines)


def _repeated(trace: RankTrace, steps: int, length: float, sigma: float, draw: np.random.Generator) -> RankTrace:
    events, count = trace.events, len(trace.events)
    factor = draw.lognormal(-0.5 * sigma * sigma, sigma, (steps, count))
    on_device = events.kind != EventKind.LAUNCH
    seconds = np.where(on_device, factor, 1.0) * events.seconds
    begin = events.begin + np.where(on_device, 0.0, (factor - 1.0) * 1e-6) + np.arange(steps)[:, None] * length
    offset = np.arange(steps)[:, None] * (int(events.correlation.max(initial=0)) + 1)
    correlation = np.where(events.correlation >= 0, events.correlation + offset, -1)
    columns = {
        name: np.tile(getattr(events, name), steps)
        for name in ("kind", "name", "lane", "external", "comm", "bytes", "group", "peer")
    }
    sequence = np.where(events.sequence >= 0, events.sequence + offset, -1)
    order = np.argsort(begin.ravel(), kind="stable")
    columns |= {
        "begin": begin.ravel(),
        "seconds": seconds.ravel(),
        "correlation": correlation.ravel(),
        "sequence": sequence.ravel(),
    }
    ordered = {name: column[order] for name, column in columns.items()}
    return replace(trace, events=Events(**ordered, names=events.names, groups=events.groups, group_names=events.group_names))


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
