"""A trace graph on a cluster: what each task takes, on which lane it runs, whom it meets; then the executor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.fidelity import check_fidelity
from windtunnel.engine.dag import ChannelKind, ChannelTable, LaneTable, TaskTable, run
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.replay.calls import Calls, live_network, price_calls
from windtunnel.replay.durations import durations
from windtunnel.replay.groups import PlacedGraph
from windtunnel.replay.options import ReplayOptions
from windtunnel.replay.result import MOVES, ReplayResult
from windtunnel.spec.machine.cluster import Cluster


def replay(
    graph: TraceGraph,
    cluster: Cluster,
    options: ReplayOptions | None = None,
    progress: Callable[[float], object] | None = None,
) -> ReplayResult:
    """Runs the graph: rank n on GPU n of the cluster.

    Tasks of a lane run in their order. Tasks without one share the device by kind: one computation, one call and one host operation
    of a rank at a time, the first that is ready; a receive holds nothing. SpecError for a cluster that is too small, a number
    format that the GPU does not have, and a network that is none.
    """
    chosen = options or ReplayOptions()
    check_fidelity(chosen.network)
    placed = PlacedGraph(graph, cluster)
    seconds, notes = durations(graph, cluster, chosen)
    calls = price_calls(placed)
    network, key = live_network(
        placed, calls, chosen, np.bincount(calls.which[calls.which >= 0], minlength=len(calls.keys)), progress
    )
    seconds, key, more = _of_calls(graph, seconds, key, calls, chosen)
    lanes, table = _lanes(graph)
    channel, slot, channels = _channels(graph)
    tasks = TaskTable(
        seconds, lanes.astype(np.int32), graph.dep_start, graph.deps, priority=np.arange(len(graph), dtype=np.int64),
        channel=channel.astype(np.int32), slot=slot.astype(np.int32), key=key,
    )  # fmt: skip
    times = run(tasks, table, channels, network=network)
    return ReplayResult(graph, times, chosen.network, (*notes, *more), _stuck_notes(graph, times.start, times.end))


def _of_calls(
    graph: TraceGraph, seconds: Floats, key: Int64s, calls: Calls, options: ReplayOptions
) -> tuple[Floats, Int64s, list[str]]:
    """Seconds of calls put in, and which of them the network times."""
    moves = np.isin(graph.kind, MOVES)
    priced = np.isfinite(calls.seconds)
    stated = moves & np.isfinite(graph.seconds)
    by_trace = stated if options.calls == "trace" else stated & ~priced
    out = np.where(moves & priced & ~by_trace, calls.seconds, seconds)
    notes = []
    if (moves & ~priced & stated).any():
        notes.append(f"{int((moves & ~priced & stated).sum())} calls without bytes take the time that the trace gives them")
    if (lost := int((moves & ~priced & ~stated).sum())) > 0:
        notes.append(f"{lost} calls have neither bytes nor a time: they take none")
    return out, np.where(by_trace, -1, key), notes


def _lanes(graph: TraceGraph) -> tuple[Int64s, LaneTable]:
    """Lane of each task [N]: those of the graph in order, then one of each kind of each rank for tasks without a lane."""
    rank = graph.rank_of().astype(np.int64)
    pair = rank * 2**32 + graph.lane
    named = graph.lane >= 0
    distinct, index = np.unique(pair[named], return_inverse=True)
    lane = np.full(len(graph), -1, np.int64)
    lane[named] = index
    moves = np.isin(graph.kind, (*MOVES, TaskKind.LOAD, TaskKind.STORE))
    shared = len(distinct) + rank * 3 + np.where(graph.on_host, 2, np.where(moves, 1, 0))
    free = (graph.kind == TaskKind.MARK) | ((graph.kind == TaskKind.RECEIVE) & ~graph.on_host)
    lane = np.where(named, lane, np.where(free, -1, shared))
    ordered = np.zeros(len(distinct) + 3 * graph.ranks, np.uint8)
    ordered[: len(distinct)] = 1
    return lane, LaneTable(ordered, np.ones(len(ordered), np.int32))


def _channels(graph: TraceGraph) -> tuple[Int64s, Int64s, ChannelTable]:
    """Channel and slot of each task [N]. A call meets those of its group's ranks that the graph holds; a message whose other end it
    does not hold meets nobody."""
    channel, slot = np.full(len(graph), -1, np.int64), np.zeros(len(graph), np.int64)
    index: dict[tuple[object, ...], int] = {}
    kinds: list[int] = []
    slots: list[int] = []

    def open_(key: tuple[object, ...], kind: ChannelKind, width: int) -> int:
        if key not in index:
            index[key] = len(index)
            kinds.append(kind)
            slots.append(width)
        return index[key]

    ranks = graph.rank_of().tolist()
    numbers = graph.numbers.tolist()
    present = set(numbers)
    here = [[rank for rank in group if rank in present] for group in graph.groups]
    for at in np.nonzero(np.isin(graph.kind, MOVES))[0].tolist():
        own = numbers[ranks[at]]
        if graph.kind[at] == TaskKind.COLLECTIVE:
            members = here[int(graph.group[at])] if graph.group[at] >= 0 else []
            if own not in members:
                channel[at] = open_(("alone", own), ChannelKind.COLLECTIVE, 1)
                continue
            # Where no lane keeps the order of calls, only equal ones meet.
            size = float(graph.bytes[at])
            what = () if graph.lane[at] >= 0 else (int(graph.comm[at]), size if size == size else -1.0)
            key = ("call", int(graph.group[at]), int(graph.tag[at]), *what)  # a tag says which call of the group it is
            channel[at] = open_(key, ChannelKind.COLLECTIVE, len(members))
            slot[at] = members.index(own)
            continue
        peer, sends = int(graph.peer[at]), graph.kind[at] == TaskKind.SEND
        if peer not in present or peer == own:
            channel[at] = open_(("alone", own), ChannelKind.COLLECTIVE, 1)
            continue
        ends = (own, peer) if sends else (peer, own)
        channel[at] = open_(("message", *ends, int(graph.tag[at])), ChannelKind.RENDEZVOUS, 2)
        slot[at] = 0 if sends else 1
    return channel, slot, ChannelTable(np.array(kinds, np.uint8), np.array(slots, np.int32))


def _stuck_notes(graph: TraceGraph, start: Floats, end: Floats) -> tuple[str, ...]:
    """What never ended: how much, and the first tasks that wait for partners."""
    lost = np.nonzero(np.isnan(end))[0]
    if not len(lost):
        return ()
    waiting = lost[np.isfinite(start[lost])]
    ranks = graph.rank_of()
    kinds = Counter(TaskKind(int(kind)).name.lower() for kind in graph.kind[waiting].tolist())
    first = [f"{graph.names[int(graph.name[at])]!r} of rank {int(graph.numbers[ranks[at]])}" for at in waiting[:3].tolist()]
    told = ", ".join(f"{count} of kind {kind}" for kind, count in sorted(kinds.items()))
    why = f"partners never come to {told}: {', '.join(first)}" if len(waiting) else "they wait for each other"
    return (f"{len(lost):,} of {len(graph):,} tasks never end; {why}",)
