"""Calls of all groups of an axis at once, as traffic on a cluster's graph.

Groups of an axis are equal, so the lanes of one are built once and mapped to the endpoints of each. In the flow engine the lanes of
all groups advance together: folded ranks wait for the slowest of them in any case. So a call is one variable, however many GPUs
take part.

Seconds that links between switches add to calls whose slices wait for slices of other lanes.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import PacketOptions
from windtunnel.engine.routes import RouteOptions, route, spread
from windtunnel.network.algorithm import ALGORITHMS
from windtunnel.network.closed.collective import prepare
from windtunnel.network.fabrics import ClusterGraph, cluster_graph
from windtunnel.network.fabrics.columns import with_endpoints
from windtunnel.network.grids.machine import Axes, grid_of
from windtunnel.network.groups.shape import Group, shape_of
from windtunnel.network.lanes.build import lanes_of
from windtunnel.network.lanes.timing import slices_of, split
from windtunnel.network.nccl.search import MeshRings, Pair
from windtunnel.network.nccl.settings import DEFAULT, Settings
from windtunnel.network.simulate.fabric_faults import FabricFaults, faults_of
from windtunnel.network.simulate.grid_calls import AxisCall as AxisCall
from windtunnel.network.simulate.grid_calls import GridPlace, grid_faults, grid_packets, refuse_sharing
from windtunnel.network.simulate.packets import packet_options, sprays, timeouts_of
from windtunnel.network.simulate.paths import (
    between_switches,
    contains_spine,
    latencies,
    planes_apart,
    relay_paths,
    rings_of,
    route_by_port,
    route_options,
)
from windtunnel.network.simulate.tenants import Tenancy, Tenant, settle
from windtunnel.network.simulate.traffic import loads
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

_DEEPEST = 64
"""Slices that follow each other in a tree, at most: a call with more is a ring or a chain of many ranks."""


def chain_seconds(lanes: Lanes, extra: Floats, steps: int) -> Floats:
    """[groups] what `extra` [K] seconds of each lane add to the lanes of a group, in which `steps` slices follow each other.

    Down and up a tree slices follow each other, so the longest way through it counts once. In a ring each slice waits for one of
    the lane before it, so slices pass all lanes in turn, of which few leave a node; so do those of a chain. Lanes that wait for
    none count once.
    """
    groups = int(lanes.group.max(initial=-1)) + 1
    waits = np.repeat(np.arange(len(lanes)), np.diff(lanes.dep_start))
    same = lanes.group[waits] == lanes.group[lanes.dep_lane]
    if not extra.any() or not same.any():
        return find_most(extra, lanes.group, groups)
    if steps > _DEEPEST or (slices_of(lanes) == steps).all():
        weight = np.bincount(lanes.group, lanes.bytes, groups)
        mean: Floats = np.bincount(lanes.group, lanes.bytes * extra, groups) / np.maximum(weight, 1.0)
        return steps * mean
    waits, before = waits[same], lanes.dep_lane[same]
    way = extra.astype(np.float64)
    for _ in range(_DEEPEST):
        longer = extra.astype(np.float64)
        np.maximum.at(longer, waits, extra[waits] + way[before])
        if not (longer > way * (1 + 1e-12)).any():
            break
        way = longer
    return find_most(way, lanes.group, groups)


def find_most(values: Floats, group: Int32s, groups: int) -> Floats:
    """[groups] the largest of the `values` [K] of each group; at least 0."""
    largest = np.zeros(groups)
    np.maximum.at(largest, group, values)
    return largest


@dataclass(frozen=True)
class Machine:
    """A cluster's graph with one NVSwitch of each server as an endpoint: `switch` [servers], -1 for none."""

    cluster: Cluster
    placed: ClusterGraph
    graph: Graph
    switch: Int32s
    settings: Settings = DEFAULT
    seed: int = 1
    faults: FabricFaults = FabricFaults()
    """Of the fabric; those that stand all the time are in the graph."""
    grid: GridPlace | None = None
    """Where ranks are on a machine of dimensions."""

    def options(self, comm: Comm) -> RouteOptions:
        """How flows of a call leave their servers and choose among equal ways."""
        return route_options(self.cluster, comm, self.settings, self.seed)

    @property
    def ports(self) -> int:
        """Ports of a NIC, over which every connection is split (paths.py)."""
        return self.cluster.fabric.nic_ports

    @property
    def flows(self) -> int:
        """Parallel flows of one connection, each with its own hash: its queue pairs on each port, or the fabric's number of
        paths."""
        if self.grid is not None:
            return 1
        return self.ports * max(self.settings.qps, self.cluster.fabric.flows_per_connection)

    @cached_property
    def is_packed(self) -> bool:
        """Whether rank r runs on GPU r, as the closed form has it."""
        return bool((self.placed.endpoint == np.arange(len(self.placed.endpoint))).all())

    def place_group(self, group: Group, rows: Int64s, pair: bool) -> Group:
        """The shape of a call's group, with the switches that its ranks' places really cross."""
        if self.is_packed or group.nodes < 2:
            return group
        here = shape_of(self.cluster, self.placed.endpoint[rows].astype(np.int64), pair)
        return replace(group, span=here.span, per_leaf=here.per_leaf, per_pod=here.per_pod) if here.nodes > 1 else group

    @property
    def sprays(self) -> bool:
        """Whether packets of one flow take all equal ways."""
        return self.grid is None and sprays(self.cluster)

    def packets(self, mtu: int) -> PacketOptions:
        """The fabric's congestion control and flow control."""
        if self.grid is not None:
            return grid_packets(self.cluster, mtu, self.seed)
        return packet_options(self.cluster, mtu, self.settings, self.seed)


def machine(
    cluster: Cluster, gpus: int, settings: Settings = DEFAULT, seed: int = 1, tenancy: Tenancy | None = None, axes: Axes = ()
) -> Machine:
    """The graph of a fabric under `gpus` ranks, where `cluster.placement` puts them; `tenancy`: under the first of several jobs;
    `axes`: those of a plan, on a machine of dimensions."""
    if (dimensions := grid_of(cluster, gpus)) is not None:
        refuse_sharing(cluster, tenancy)
        place = GridPlace(dimensions, axes)
        placed = place.place_ranks()
        faults = grid_faults(cluster)
        return Machine(cluster, placed, faults.break_links(placed.graph), np.zeros(0, np.int32), settings, seed, faults, place)
    if tenancy is None:
        tenancy = settle([Tenant(cluster.id, cluster.model_copy(update={"gpus": gpus}))])
    placed = replace(cluster_graph(cluster, tenancy.nodes), endpoint=tenancy.gpus[0])
    faults = faults_of(cluster, timeouts_of(cluster, settings), settings.ib_retries)
    graph = faults.break_links(placed.graph)
    if sprays(cluster) and cluster.fabric.ecmp_efficiency < 1.0:  # what even the best choice of ways loses, as in closed form
        above = between_switches(graph)
        graph = replace(graph, link_rate=np.where(above, graph.link_rate * cluster.fabric.ecmp_efficiency, graph.link_rate))
    nodes = np.nonzero((graph.node_kind == NodeKind.NVSWITCH) & (graph.node_site >= 0))[0]
    sites = int(graph.node_site.max(initial=-1)) + 1
    switch = np.full(sites, -1, np.int32)
    distinct, first = np.unique(graph.node_site[nodes], return_index=True)
    switch[distinct] = graph.endpoints + np.arange(len(distinct), dtype=np.int32)
    return Machine(cluster, placed, with_endpoints(graph, nodes[first]), switch, settings, seed, faults)


def with_slow_nics(on: Machine, ranks: Int64s, rate: float) -> Machine:
    """The machine with the nearest NICs of these ranks at `rate` of their own rate, both ways."""
    graph = on.graph
    ends = on.placed.endpoint[ranks]
    slow = np.zeros(graph.nodes, np.bool_)
    slow[graph.nics[graph.nic_start[ends[graph.nic_start[ends + 1] > graph.nic_start[ends]]]]] = True
    outside = (graph.node_site[graph.link_from] < 0) | (graph.node_site[graph.link_to] < 0)
    hit = outside & (slow[graph.link_from] | slow[graph.link_to])
    return replace(on, graph=replace(graph, link_rate=np.where(hit, graph.link_rate * rate, graph.link_rate)))


def plan_of(on: Machine, comm: Comm, size: float, rows: Int64s, group: Group) -> AxisCall:
    """The call of `size` bytes that every group makes; `rows` [groups, ranks] are rank numbers.

    SpecError if NCCL would use the fabric's switches for reduction (SHARP), which is not modelled for whole jobs.
    """
    if on.grid is not None:
        return on.grid.call(on.cluster, on.graph, comm, size, rows, group)
    count, ranks = rows.shape
    chosen = prepare(on.cluster, comm, group, on.settings).choose(size)[0]
    if ALGORITHMS[chosen].adds_in_fabric(group):
        raise SpecError("runtime.nccl.NCCL_COLLNET_ENABLE", 1, "0 for a whole job over the flow or packet engine")
    local = np.arange(ranks, dtype=np.int32)
    homes = -(-ranks // group.per_node)
    ends = on.placed.endpoint[np.sort(rows, axis=1) if comm != Comm.SEND_RECV else rows]
    sites = on.graph.node_site[on.graph.endpoint[ends[:, :: group.per_node]]]
    mesh = MeshRings() if (on.switch[sites] >= 0).all() else rings_of(on.graph, ends[0, : group.per_node])
    lowered = lanes_of(
        on.cluster, comm, size, local, group, settings=on.settings, switches=np.arange(ranks, ranks + homes, dtype=np.int32),
        rings=mesh.rings,
    )  # fmt: skip
    where = np.concatenate([ends, on.switch[sites]], axis=1).astype(np.int32)
    one = lowered.lanes
    lanes = _tile(one, where, count)
    if (np.minimum(lanes.src, lanes.dst) < 0).any():
        raise SpecError("cluster.node.scale_up", on.cluster.node.scale_up.kind, "NVSwitches, for an algorithm that adds in them")
    options = on.options(comm)
    way = np.tile(lowered.pattern.channel.astype(np.uint64), count)
    paths = route(on.graph, lanes.src, lanes.dst, way, options)
    if mesh.through:
        local_relays = [
            (pair, gpu) for first in range(0, ranks, group.per_node) for pair, gpu in _relays_of_node(mesh.through, first, ranks)
        ]
        relays = tuple(((int(of[a]), int(of[b])), int(of[c])) for of in ends for (a, b), c in local_relays)
        paths = relay_paths(on.graph, relays, lanes, way, options, paths)
    here = on.place_group(group, rows, comm == Comm.SEND_RECV)
    spine = contains_spine(on.cluster, here)
    _, above = latencies(on.graph, paths, spine)
    wait = float(one.begin.min(initial=np.inf))
    grouped = len(one.dep_lane) and not (one.group == np.arange(len(one))).all()
    added = chain_seconds(lanes, above, lowered.pattern.local_steps + lowered.pattern.net_steps) if grouped else above
    extra = float(added.max(initial=0.0))
    call = AxisCall(lanes, options, way, paths, lowered.seconds, lowered.latency, wait, extra, spine)
    return call if group.nodes < 2 else _all_at_once(on, comm, size, here, call)


def _all_at_once(on: Machine, comm: Comm, size: float, group: Group, call: AxisCall) -> AxisCall:
    """The call as slow as if all groups of its axis make it at once, some of them beyond a leaf.

    Its lanes have the rate of one group below a leaf. Groups that share a NIC would reach its full rate together, which no library
    does, and where flows choose their ways well the engine would find nothing of the fabric's `ecmp_efficiency`. So the closed
    form's seconds for all of them are the least; what up-links lack is left to the engine.
    """
    near = prepare(on.cluster, comm, replace(group, sharing=1, span="leaf"), on.settings).seconds(size)[0]
    far = prepare(on.cluster, comm, group, on.settings, thin=False).seconds(size)[0]
    if far.seconds <= call.seconds:
        return call
    moved = call.seconds - call.latency
    more = (far.seconds - far.latency) / (near.seconds - near.latency) if near.seconds > near.latency else 1.0
    longer = min(far.seconds, moved * max(1.0, more))
    rest = (far.seconds - longer) / call.latency if call.latency > 0.0 else 1.0
    extra = max(0.0, call.seconds + call.extra - far.seconds)  # the closed form has hops of its own there
    return replace(_stretch(call, longer / moved if moved > 0.0 else 1.0, rest), extra=extra)


def slow_down(call: AxisCall, factor: float) -> AxisCall:
    """The call with all of its seconds so much longer."""
    return call if factor == 1.0 else _stretch(call, factor, factor)


def _stretch(call: AxisCall, bytes_: float, latency: float) -> AxisCall:
    """The call with so many times the seconds for its bytes, and for all else."""
    one = call.lanes
    lanes = replace(one, rate=one.rate / bytes_, delay=one.delay * latency, begin=one.begin * latency)
    longer = call.latency * latency
    seconds = (call.seconds - call.latency) * bytes_ + longer
    return replace(call, lanes=lanes, seconds=seconds, latency=longer, wait=call.wait * latency)


def connections_of(on: Machine, plan: AxisCall) -> AxisCall:
    """The plan with each lane between nodes over as many connections as the machine uses side by side, each with its own hash."""
    flows = on.ports if on.sprays else on.flows
    if flows == 1:
        return plan
    site = on.graph.node_site[on.graph.endpoint]
    lanes, old, part = split(plan.lanes, site[plan.lanes.src] != site[plan.lanes.dst], flows)
    way = plan.way[old] * np.uint64(flows) + part.astype(np.uint64)
    paths = route_by_port(on.graph, lanes.src, lanes.dst, way, plan.options, part, ports=on.ports, arrives=planes_apart(on.cluster))
    return replace(plan, lanes=lanes, way=way, paths=paths)


def demand_of(on: Machine, plan: AxisCall) -> Floats:
    """Bytes of the plan on each link [L]: on the lanes' paths; split evenly over several hash values of each pair of endpoints if
    connections have several; evenly over all equal paths if the fabric sprays."""
    nbytes = plan.lanes.bytes.astype(np.float64)
    if on.sprays:
        return spread(on.graph, plan.lanes.src, plan.lanes.dst, nbytes, plan.way, plan.options)
    if on.flows == 1:
        return loads(on.graph, plan.paths, nbytes)
    pair, index = np.unique(plan.lanes.src.astype(np.int64) * on.graph.endpoints + plan.lanes.dst, return_inverse=True)
    src, dst = np.repeat(pair // on.graph.endpoints, on.flows), np.repeat(pair % on.graph.endpoints, on.flows)
    each = np.repeat(np.bincount(index, nbytes) / on.flows, on.flows)
    number = np.arange(len(src))
    paths = route_by_port(
        on.graph,
        src,
        dst,
        number.astype(np.uint64),
        plan.options,
        number % on.flows,
        ports=on.ports,
        arrives=planes_apart(on.cluster),
    )
    return loads(on.graph, paths, each)


def _relays_of_node(through: tuple[tuple[Pair, int], ...], first: int, ranks: int) -> list[tuple[Pair, int]]:
    """Relays of a node whose first rank is `first`, as far as its ranks go."""
    moved = [((a + first, b + first), c + first) for (a, b), c in through]
    return [(pair, c) for pair, c in moved if max(*pair, c) < ranks]


def _tile(one: Lanes, where: Int32s, count: int) -> Lanes:
    """Copies of the lanes for each row of endpoints; each copy has its own lanes and groups."""
    size, groups, depth = len(one), int(one.group.max(initial=-1)) + 1, len(one.dep_lane)
    copy = np.arange(count)[:, None]
    return Lanes(
        src=where[:, one.src].ravel(), dst=where[:, one.dst].ravel(), bytes=np.tile(one.bytes, count),
        slice=np.tile(one.slice, count), window=np.tile(one.window, count), delay=np.tile(one.delay, count),
        rate=np.tile(one.rate, count), begin=np.tile(one.begin, count), group=(one.group + copy * groups).ravel().astype(np.int32),
        dep_start=np.append((one.dep_start[:-1] + copy * depth).ravel(), count * depth).astype(np.int64),
        dep_lane=(one.dep_lane + copy * size).ravel().astype(np.int32), dep_lead=np.tile(one.dep_lead, count),
    )  # fmt: skip
