"""What calls of a trace graph take on a cluster: in closed form, and as traffic for an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.fidelity import CLOSED
from windtunnel.engine import _core
from windtunnel.network.closed.collective import collective
from windtunnel.network.groups.shape import Group, shape_of
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.replay.groups import PlacedGraph
from windtunnel.replay.options import ReplayOptions

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
