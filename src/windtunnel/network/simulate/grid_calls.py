"""Calls on machines whose accelerators are joined along dimensions, as traffic on the machine's graph.

A call of several equal groups as traffic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import Loss, PacketOptions
from windtunnel.engine.routes import NicChoice, Policy, RouteOptions
from windtunnel.network.algorithms.pattern import deps
from windtunnel.network.closed.grid import GridCall, grid_call
from windtunnel.network.fabrics.cluster import ClusterGraph
from windtunnel.network.fabrics.faults import Fault
from windtunnel.network.grids.machine import Axes, GridMachine, number_points
from windtunnel.network.grids.spans import GridLinks, GridSpan, grid_points, join_hops
from windtunnel.network.groups.shape import Group
from windtunnel.network.lanes.grid_lanes import GridLanes, lanes_on_grid, message_lanes
from windtunnel.network.simulate.fabric_faults import FIELD, FabricFaults, faults_of, parse_any
from windtunnel.network.simulate.packets import packet_options
from windtunnel.network.simulate.tenants import Tenancy
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

CABLE = 1e-12
"""Seconds of a link beside the delay of the lanes over it."""
BUFFER = 1e12
"""Bytes: more than is ever under way."""
OPTIONS = RouteOptions(Policy.DIMENSION_ORDER, NicChoice.NEAREST, 1)


@dataclass(frozen=True)
class GridPlace:
    """A machine with a plan's axes on it; none: ranks in the order of the accelerators."""

    machine: GridMachine
    axes: Axes = ()

    def place_ranks(self) -> ClusterGraph:
        """The machine's graph, and the accelerator of each rank. Hops are the lanes' delays, which contain a packet's way through
        each router, so links have next to none of their own."""
        graph, count = self.machine.graph(), self.machine.accelerators
        graph = replace(graph, link_latency=np.minimum(graph.link_latency, CABLE))
        ends = number_points(self.machine, grid_points(self.machine, self.axes, np.arange(count))).astype(np.int32)
        zero = np.zeros(count, np.int32)
        return ClusterGraph(graph, ends, np.arange(count, dtype=np.int32), zero, zero, 1)

    def call(self, cluster: Cluster, graph: Graph, comm: Comm, size: float, rows: Int64s, group: Group) -> AxisCall:
        """The call of `size` bytes that every group of `rows` [groups, ranks] makes."""
        call = grid_call(cluster, comm, group)
        points = grid_points(self.machine, self.axes, rows)
        if not call.schedule.stages:
            lanes = message_lanes(call, size, rows.shape[1])
        else:
            lanes = lanes_on_grid(call, size)
            points = _number_along(points, call.grid.spans)
        return _as_traffic(self.machine, graph, call, lanes, points, size)


def grid_packets(cluster: Cluster, mtu: int, seed: int) -> PacketOptions:
    """Links that lose nothing, without ACKs beside the data: the engine's have one byte. No buffer is ever full, so nothing waits
    for itself in a circle, as virtual channels see to."""
    return replace(packet_options(cluster, mtu, seed=seed), control=1, buffer=BUFFER, inner_buffer=BUFFER, loss=Loss.DROP)


def refuse_sharing(cluster: Cluster, tenancy: Tenancy | None) -> None:
    """SpecError for what needs switches between jobs: other jobs, storage servers, nodes that a job chooses."""
    fabric, allowed = (
        cluster.fabric,
        "nothing on a torus, mesh or ndim: one job has the machine, and plan.placement orders its axes",
    )
    given = {
        "cluster.placement": cluster.placement,
        "cluster.fabric.nodes": fabric.nodes,
        "cluster.fabric.storage": fabric.storage and fabric.storage.servers,
    }
    for path, value in given.items():
        if value is not None:
            raise SpecError(path, value, allowed)


def grid_faults(cluster: Cluster) -> FabricFaults:
    """The faults of the cluster's fabric. SpecError for all but slow links: calls have fixed ways along their dimensions."""
    faults = faults_of(cluster, (), 0)
    for text, one in zip(faults.stated, map(parse_any, faults.stated), strict=True):
        if not isinstance(one, Fault) or one.factor <= 0.0:
            raise SpecError(
                FIELD,
                text,
                "PATTERN:slow=0.5 on a torus, mesh or ndim",
                "Calls take fixed ways along dimensions there, and no detours.",
            )
    return faults


def _number_along(points: Int64s, spans: tuple[GridSpan, ...]) -> Int64s:
    """[groups, ranks, dimensions] places of ranks numbered along spans, the first one fastest."""
    low = points.min(axis=1, keepdims=True)
    rank, offset = np.arange(points.shape[1]), np.zeros(points.shape[1:], np.int64)
    for span in spans:
        offset[:, span.dimension] += rank % span.size * span.stride
        rank = rank // span.size
    places: Int64s = low + offset
    return places


def _as_traffic(machine: GridMachine, graph: Graph, call: GridCall, one: GridLanes, points: Int64s, size: float) -> AxisCall:
    """The lanes of a group, once for each of the groups at `points`."""
    groups, lanes, copy = len(points), len(one.src), np.arange(len(points))[:, None]
    src, dst = (points[:, ends].reshape(-1, points.shape[2]) for ends in (one.src, one.dst))
    slice_ = np.maximum(1, np.ceil(one.slice - 1e-6)).astype(np.int64)
    lane, on, lead = one.waits
    start, other, ahead = deps(
        groups * lanes, (lane + copy * lanes).ravel(), (on + copy * lanes).ravel(), np.tile(lead, groups)
    )  # fmt: skip
    seconds, latency = call.cost(size)
    launch = machine.builder.launch
    joined = Lanes(
        src=number_points(machine, src).astype(np.int32),
        dst=number_points(machine, dst).astype(np.int32),
        bytes=np.tile(slice_ * one.slices, groups),
        slice=np.tile(slice_, groups),
        window=np.zeros(groups * lanes, np.int32),
        delay=np.tile(one.delay, groups),
        rate=np.tile(one.rate, groups),
        begin=np.full(groups * lanes, launch),
        group=(one.stage + copy * (int(one.stage.max()) + 1)).ravel().astype(np.int32),
        dep_start=start,
        dep_lane=other,
        dep_lead=ahead,
    )
    paths = _route_lanes(machine, graph, src, dst, np.tile(one.dimension, groups), np.tile(one.back, groups))
    return AxisCall(joined, OPTIONS, np.arange(groups * lanes, dtype=np.uint64), paths, seconds, latency, launch, 0.0)


def _route_lanes(machine: GridMachine, graph: Graph, src: Int64s, dst: Int64s, dimension: Int64s, back: np.ndarray) -> Paths:
    """The links of each lane: along its dimension, or for a message dimension by dimension."""
    links = GridLinks.of(machine)
    found = []
    far = np.flatnonzero(dimension < 0)
    if len(far):
        message, link = links.route(src[far], dst[far])
        found.append((far[message], link))
    for one in np.unique(dimension[dimension >= 0]).tolist():
        at = np.flatnonzero(dimension == one)
        found += [(at[message], link) for message, link in links.pass_dimension(src[at], dst[at, one], one, back[at])]
    lane, link = join_hops(found)
    start = np.zeros(len(src) + 1, np.int64)
    np.cumsum(np.bincount(lane, minlength=len(src)), out=start[1:])
    return Paths(start, links.numbers_in(graph)[link].astype(np.int32))


@dataclass(frozen=True)
class AxisCall:
    """A call of several equal groups: K lanes in all."""

    lanes: Lanes
    options: RouteOptions
    way: npt.NDArray[np.uint64]
    """[K] keys of the lanes' connections."""
    paths: Paths
    seconds: float
    """The closed form's for one group without other traffic."""
    latency: float
    """The part that moves no bytes."""
    wait: float
    """The part of `latency` before the first byte."""
    extra: float
    """Seconds of links between switches, which the closed form's hops do not contain."""
    spine: bool = False
    """Whether they do contain them."""
