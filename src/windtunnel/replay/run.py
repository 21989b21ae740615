"""A trace graph on a cluster: what each task takes, on which lane it runs, whom it meets; then the executor.

Seconds of computations and of copies to other memories, alone.

What calls of a trace graph take on a cluster: in closed form, and as traffic for an engine.

Groups that a trace graph talks over, and the shapes that they have on a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, check_fidelity
from windtunnel.engine import _core
from windtunnel.engine.dag import ChannelKind, ChannelTable, LaneTable, TaskTable, run
from windtunnel.network.closed.collective import collective
from windtunnel.network.groups.shape import Group, shape_of
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.replay.options import ReplayOptions
from windtunnel.replay.result import MOVES, ReplayResult
from windtunnel.spec.machine import GPU, Cluster, Place


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


PRODUCTS = ("gemm", "matmul", "::mm", "::bmm", "addmm", "linear", "conv", "attention", "flash", "cutlass", "cublas", "einsum")
"""Parts of the names of computations that FLOPs bound, where neither FLOPs nor bytes are stated."""


def durations(graph: TraceGraph, cluster: Cluster, options: ReplayOptions) -> tuple[Floats, list[str]]:
    """Seconds [N] of all tasks that meet nobody, and what was assumed for them."""
    notes: list[str] = []
    seconds = np.where(np.isfinite(graph.seconds), graph.seconds, 0.0)
    device = (graph.kind == TaskKind.COMPUTE) & ~graph.on_host
    unknown = device & ~np.isfinite(graph.seconds)
    stated = (np.nan_to_num(graph.flops) > 0) | (np.nan_to_num(graph.bytes) > 0)
    scaled = device & np.isfinite(graph.seconds)
    if options.compute == "kernels":
        from windtunnel.replay.kernels import kernel_seconds

        own, notes = kernel_seconds(graph, cluster.node.gpu, device)
        found = np.isfinite(own)
        seconds[found] = own[found]
        scaled, unknown = scaled & ~found, unknown & ~found
    if options.compute == "roofline":
        scaled &= ~stated
        unknown = unknown | (device & stated)
    if unknown.any():
        seconds[unknown] = roofline(graph, cluster.node.gpu, options.precision)[unknown]
        if options.compute != "roofline":
            notes.append(f"{int(unknown.sum())} computations without a time take what their FLOPs and bytes need at the GPU's peak")
    if options.source is not None:
        seconds[scaled] = seconds[scaled] * _factor(graph, options.source, cluster.node.gpu, options.precision)[scaled]
    memory = (graph.kind == TaskKind.LOAD) | (graph.kind == TaskKind.STORE)
    open_ = memory & ~np.isfinite(graph.seconds)
    if open_.any():
        seconds[open_] = _copies(graph, cluster)[open_]
        notes.append(f"{int(open_.sum())} memory nodes run to the pool, the expansion or the host memory of the cluster")
    seconds[graph.kind == TaskKind.MARK] = 0.0
    return seconds, notes


def roofline(graph: TraceGraph, gpu: GPU, precision: str) -> Floats:
    """The longer of FLOPs over the peak and bytes over the memory's bandwidth [N]."""
    flops, moved = np.nan_to_num(graph.flops), np.nan_to_num(graph.bytes)
    return np.maximum(flops / peak(gpu, precision), moved / gpu.memory_bandwidth)


def peak(gpu: GPU, precision: str) -> float:
    """Peak FLOP/s of a number format. SpecError for one that the GPU does not state."""
    rates: dict[str, float] = {str(name): float(rate) for name, rate in gpu.peak.items()}
    if precision not in rates:
        raise SpecError("--precision", precision, ", ".join(rates))
    return rates[precision]


def _factor(graph: TraceGraph, source: GPU, target: GPU, precision: str) -> Floats:
    """Time there over time here [N]: by FLOP rate where FLOPs bind on the source, else by memory bandwidth."""
    by_flops = peak(source, precision) / peak(target, precision)
    by_bytes = source.memory_bandwidth / target.memory_bandwidth
    return np.where(_bound_by_flops(graph, source, precision), by_flops, by_bytes)


def _bound_by_flops(graph: TraceGraph, gpu: GPU, precision: str) -> Bools:
    flops, moved = np.nan_to_num(graph.flops), np.nan_to_num(graph.bytes)
    named = np.array([any(part in name.lower() for part in PRODUCTS) for name in graph.names] or [False])[graph.name]
    counted = (flops > 0) | (moved > 0)
    return np.asarray(np.where(counted, flops / peak(gpu, precision) >= moved / gpu.memory_bandwidth, named), np.bool_)


def _copies(graph: TraceGraph, cluster: Cluster) -> Floats:
    """Seconds [N] to and from the memory that the cluster has beyond its GPUs': the pool, the node's expansion, or the host's."""
    from windtunnel.memory.tiers import legs

    place: Place = "pool" if cluster.memory_pool is not None else "expansion" if cluster.node.expansion is not None else "host"
    size = np.nan_to_num(graph.bytes)
    out = sum(leg.latency + size / leg.rate for leg in legs(cluster, place, out=True))
    back = sum(leg.latency + size / leg.rate for leg in legs(cluster, place, out=False))
    return np.where(size > 0, np.where(graph.kind == TaskKind.STORE, out, back), 0.0)


Key = tuple[int, float, int, int]
"""A distinct call: its Comm, its bytes, and its group (of a message: sender and receiver)."""


@dataclass(frozen=True)
class Calls:
    """Of the graph's tasks [N]: `seconds` of calls alone, NaN for other tasks and for calls of unknown size; `which` of the
    distinct calls `keys` each one is, -1 none."""

    seconds: Floats
    which: Int64s
    keys: tuple[Key, ...]


def price_calls(placed: PlacedGraph) -> Calls:
    """Closed-form seconds of every call and message."""
    graph = placed.graph
    seconds, which = np.full(len(graph), np.nan), np.full(len(graph), -1, np.int64)
    number: dict[Key, int] = {}
    prices: list[float] = []
    ranks = graph.rank_of()
    grouped = (graph.kind == TaskKind.COLLECTIVE) & (graph.group >= 0)  # a call of unknown ranks has no price
    moves = grouped | (graph.kind == TaskKind.SEND) | (graph.kind == TaskKind.RECEIVE)
    for at in np.nonzero(moves & np.isfinite(graph.bytes))[0].tolist():
        key = key_of(graph, at, int(graph.numbers[ranks[at]]))
        if key not in number:
            number[key] = len(number)
            prices.append(collective(placed.cluster, Comm(key[0]), key[1], group_of(placed, key)).seconds)
        which[at] = number[key]
        seconds[at] = prices[number[key]]
    return Calls(seconds, which, tuple(number))


def key_of(graph: TraceGraph, at: int, own: int) -> Key:
    """The distinct call that a task of rank `own` is."""
    size = float(graph.bytes[at])
    if graph.kind[at] == TaskKind.COLLECTIVE:
        return int(graph.comm[at]), size, int(graph.group[at]), -1
    peer = int(graph.peer[at])
    if graph.kind[at] == TaskKind.SEND and peer < 0:  # to nobody that is known
        peer = own
    return (int(Comm.SEND_RECV), size, own, peer) if graph.kind[at] == TaskKind.SEND else (int(Comm.SEND_RECV), size, peer, own)


def group_of(placed: PlacedGraph, key: Key) -> Group:
    """The shape of a call's group."""
    if key[0] != Comm.SEND_RECV or key[3] < 0:
        return placed.shape(key[2])
    if key[2] == key[3] or min(key[2:]) < 0:
        return Group(1, 1, 1)
    return shape_of(placed.cluster, placed.pairs(key[2], key[3]), pair=True)


def live_network(
    placed: PlacedGraph, calls: Calls, options: ReplayOptions, used: Int64s, progress: Callable[[float], object] | None = None
) -> tuple[_core.Network | None, Int64s]:
    """A network for the calls that leave a scale-up domain, and the number [N] by which it knows each task's call, -1 where the
    closed form's seconds count. `used` [keys]: how often each distinct call runs."""
    none = np.full(len(calls.which), -1, np.int64)
    if options.network == CLOSED:
        return None, none
    from windtunnel.network.simulate.axis_calls import machine, plan_of  # slow to import
    from windtunnel.predict.engines.flow import FlowStep
    from windtunnel.predict.engines.packet import PacketStep
    from windtunnel.predict.program.calls import NetworkCall
    from windtunnel.workload import Axis

    on = machine(placed.cluster, placed.cluster.gpus, seed=options.seed)
    plans, named, live = [], [], []
    for index, key in enumerate(calls.keys):
        shape = group_of(placed, key)
        if (shape.nodes < 2 and shape.grid is None) or shape.ranks < 2 or key[1] <= 0:
            continue
        if key[0] == Comm.SEND_RECV:
            rows = np.array([key[2:]], np.int64) if placed.has_all_ranks else placed.pairs(key[2], key[3])
        else:
            rows = placed.group_by_itself(key[2]) if placed.has_all_ranks else placed.rows(key[2])
        plans.append(plan_of(on, Comm(key[0]), key[1], rows, shape))
        named.append(NetworkCall(Comm(key[0]), Axis.WORLD, key[1], None))
        live.append(index)
    if not plans:
        return None, none
    order = np.full(len(calls.keys), -1, np.int64)
    order[live] = np.arange(len(live))
    keys = np.arange(len(live), dtype=np.int64)
    network: _core.Network | None
    if options.network == "flow":
        network = FlowStep.of_plans(on, named, plans).network(keys, keys)
    else:
        step = PacketStep.of_plans(on, named, plans, options.skip, options.threads)
        network = step.network(keys, keys, progress, used[live])
    return network, np.where(calls.which >= 0, order[calls.which], -1)


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
