"""A call's ranks on a cluster's graph: endpoints, switches that reduce, and the links of each lane.

NIC and port by which each connection leaves and arrives.

A library does not choose them by hash. NCCL opens queue pairs on each NIC that a GPU drives. A NIC with two ports (dual ToR, dual
plane) is two devices that NCCL merges into one: a queue pair on each port, from port p to port p, with data split evenly over them
(`src/transport/net_ib`: virtual devices, NCCL_IB_MERGE_NICS). So a GPU's 400 Gb/s over two ports of 200 is 400 Gb/s for one
connection. Where planes are apart, and below one set of leaves, it arrives at the port that it left by. Where all leaves share the
spines, both leaves of a NIC announce it, and a spine hashes among them: several connections may meet on one port while the other is
idle (Qian et al., "Alibaba HPN", SIGCOMM 2024, section 6: why its planes are apart).

The router hashes a flow to one of equally near NICs and of equal links, so a connection's key is changed until the hash gives the
intended NIC and ports.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.engine.graph import Graph, NodeKind, Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.routes import NicChoice, Policy, RouteOptions, route
from windtunnel.network.closed.collective import ClusterKey
from windtunnel.network.fabrics import cluster_graph
from windtunnel.network.fabrics.columns import with_endpoints
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl.channels import may_relay, on_rails_alone
from windtunnel.network.nccl.search import MOST_IN_MESH, MeshRings, mesh_rings
from windtunnel.network.nccl.settings import Settings
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

_TRIES = 96
"""Maximum number of keys tried. With two NICs of two ports one in eight is right, so 96 fail for three of a million connections."""


class Exits(NamedTuple):
    """For each path: the index of the GPU's NIC that it leaves by, the port of that NIC, and the port of arrival; -1: none."""

    nic: Int32s
    leaves: Int32s
    arrives: Int32s


def exits(graph: Graph, paths: Paths) -> Exits:
    """NIC and ports of each path; ports of a NIC are numbered by its links that are up."""
    kind, site = graph.node_kind, graph.node_site
    a, b = graph.link_from, graph.link_to
    outside = (site[a] != site[b]) & (graph.link_up > 0)
    out = _ordinals(np.where(outside & (kind[a] == NodeKind.NIC), a, -1))
    back = _ordinals(np.where(outside & (kind[b] == NodeKind.NIC), b, -1))
    index = np.full(graph.nodes, -1, dtype=np.int32)
    owner = np.repeat(np.arange(len(graph.nic_start) - 1), np.diff(graph.nic_start))
    index[graph.nics] = np.arange(len(graph.nics)) - graph.nic_start[owner]
    path = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    result = Exits(*(np.full(len(paths), -1, dtype=np.int32) for _ in range(3)))
    first = np.nonzero(out[paths.links] >= 0)[0][::-1]  # backwards, so that the first of a path is written last
    result.nic[path[first]] = index[a[paths.links[first]]]
    result.leaves[path[first]] = out[paths.links[first]]
    last = np.nonzero(back[paths.links] >= 0)[0]
    result.arrives[path[last]] = back[paths.links[last]]
    return result


def _ordinals(node: npt.NDArray[np.integer]) -> Int32s:
    """Number of each link among those of its node; -1 if `node` is -1."""
    chosen = np.nonzero(node >= 0)[0]
    order = chosen[np.argsort(node[chosen], kind="stable")]
    _, first, count = np.unique(node[order], return_index=True, return_counts=True)
    ordinal = np.full(len(node), -1, dtype=np.int32)
    ordinal[order] = np.arange(len(order)) - np.repeat(first, count)
    return ordinal


def route_by_port(
    graph: Graph,
    src: Int32s,
    dst: Int32s,
    key: npt.NDArray[np.uint64],
    options: RouteOptions,
    part: npt.NDArray[np.integer],
    nics: int = 1,
    ports: int = 1,
    arrives: bool = True,
) -> Paths:
    """Paths of connections. Connection number `part` [F] of a message uses NIC (part modulo `nics`) of the GPU, and port
    (part / nics) modulo `ports`, on both sides if `arrives`: without, the last switch before the ports' leaves chooses among them
    by hash. Raises as `route`."""
    if nics * ports == 1:
        return route(graph, src, dst, key, options)
    keys = key.copy()
    step = np.uint64(int(keys.max(initial=0)) + 1)
    nic, port = part % nics, part // nics % ports
    open_: Int64s = np.arange(len(src))
    for _ in range(_TRIES):
        at = exits(graph, route(graph, src[open_], dst[open_], keys[open_], options))
        right = (at.nic < 0) | (at.nic % nics == nic[open_])
        for which in (at.leaves, at.arrives) if arrives else (at.leaves,):
            right &= (which < 0) | (which % ports == port[open_])
        open_ = open_[~right]
        if not len(open_):
            break
        keys[open_] += step
    return route(graph, src, dst, keys, options)


@dataclass(frozen=True)
class PlacedRanks:
    """A graph and, in it, the endpoints of ranks [n] and of switches that add: NVSwitches of the call's nodes, then of the fabric
    as collnet.py numbers them (empty if there are none). `leaves` [nodes]: the set of leaf switches of each node. `rings`: the
    cycles of a node's local ranks that its direct links allow (empty: any order). `through`: endpoints that are
    connected through a third GPU of the group: ((from, to), between)."""

    graph: Graph
    ranks: Int32s
    switches: Int32s
    leaves: tuple[int, ...]
    rings: tuple[tuple[int, ...], ...] = ()
    through: tuple[tuple[tuple[int, int], int], ...] = ()


def place_ranks(cluster: Cluster, group: Group) -> PlacedRanks:
    """Consecutive GPUs, `group.per_node` in each domain from its first on, as nccl-tests places them."""
    return _links(ClusterKey(cluster), group.ranks, group.per_node)


@lru_cache(maxsize=8)
def _links(key: ClusterKey, count: int, here: int) -> PlacedRanks:
    cluster = key.cluster
    domain = cluster.domain
    ranks = (np.arange(count) // here) * domain + np.arange(count) % here
    placed = cluster_graph(cluster, int(ranks[-1]) // cluster.node.gpus + 1)
    ends = placed.endpoint[ranks].astype(np.int32)
    return add_switches(placed.graph, ends, here, cluster.fabric.in_network_reduction)


def add_switches(graph: Graph, ranks: Int32s, per_node: int, reduces: bool = False) -> PlacedRanks:
    """The graph with the switches that can add for these ranks as endpoints; `reduces`: also those of the fabric."""
    nodes = -(-len(ranks) // per_node)
    home = graph.endpoint[ranks]
    site = graph.node_site[home[::per_node]]
    nvswitch = np.nonzero(graph.node_kind == NodeKind.NVSWITCH)[0]
    where = {int(graph.node_site[node]): int(node) for node in reversed(nvswitch)}
    inside = [where.get(int(s), -1) for s in site]
    if min(inside) < 0:
        rings_of_node = _mesh_rings(graph, home[:per_node])
        here = [ranks[at : at + per_node].tolist() for at in range(0, len(ranks), per_node)]
        through = tuple(((at[a], at[b]), at[c]) for at in here for (a, b), c in rings_of_node.through if max(a, b, c) < len(at))
        return PlacedRanks(graph, ranks, np.zeros(0, dtype=np.int32), (0,) * nodes, rings_of_node.rings, through)
    fabric, leaves = (_fabric(graph, ranks, per_node) if reduces and nodes > 1 else None) or ([], (0,) * nodes)
    switch_nodes = np.array([*inside, *fabric], dtype=np.int32)
    ends = np.arange(graph.endpoints, graph.endpoints + len(switch_nodes), dtype=np.int32)
    return PlacedRanks(with_endpoints(graph, switch_nodes), ranks, ends, leaves)


def rings_of(graph: Graph, endpoints: Int32s) -> MeshRings:
    """Rings over direct links between these GPUs; none if there are no such links."""
    return _mesh_rings(graph, graph.endpoint[endpoints])


def _mesh_rings(graph: Graph, gpus: Int32s) -> MeshRings:
    """Rings over links between the GPUs themselves (a mesh without a switch)."""
    place = {int(node): i for i, node in enumerate(gpus.tolist())}
    room: dict[tuple[int, int], float] = {}
    inside = np.isin(graph.link_from, gpus) & np.isin(graph.link_to, gpus)
    columns = (graph.link_from[inside], graph.link_to[inside], graph.link_rate[inside])
    for a, b, rate in zip(*(column.tolist() for column in columns), strict=True):
        room[place[a], place[b]] = room.get((place[a], place[b]), 0.0) + rate
    if not room or len(gpus) > MOST_IN_MESH:
        return MeshRings()
    unit = min(room.values())
    return mesh_rings(len(gpus), {pair: round(rate / unit) for pair, rate in room.items()})


def _fabric(graph: Graph, ranks: Int32s, per_node: int) -> tuple[list[int], tuple[int, ...]] | None:
    """(leaf switches by group and head, then the switch above them for each head; group of each node), or None if no single
    switch connects the leaves."""
    fabric = (graph.node_kind == NodeKind.SWITCH) & (graph.node_site < 0)
    upward: dict[int, list[int]] = {}
    for a, b in zip(graph.link_from.tolist(), graph.link_to.tolist(), strict=True):
        if fabric[b]:
            upward.setdefault(a, []).append(b)
    first = ranks[::per_node]
    nics = [graph.nics[graph.nic_start[e] : graph.nic_start[e + 1]].tolist() for e in ranks.tolist()]
    heads = _heads(nics[:per_node])
    sets = []
    for node in range(len(first)):
        ports = [nics[node * per_node + head] for head in heads]
        if not all(ports) or not all(upward.get(p[0]) for p in ports):
            return None
        sets.append(tuple(upward[p[0]][0] for p in ports))
    groups = sorted(set(sets))
    switches = [leaf for group in groups for leaf in group]
    if len(groups) > 1:
        for head in range(len(heads)):
            above = [set(upward.get(group[head], [])) for group in groups]
            common = sorted(set.intersection(*above))
            if not common:
                return None
            switches.append(common[head % len(common)])
    return switches, tuple(groups.index(s) for s in sets)


def _heads(nics: list[list[int]]) -> list[int]:
    """Local ranks that have a NIC of their own, as `collnet.heads_of` numbers them."""
    count = max(1, min(len({n for own in nics for n in own}), len(nics)))
    return [head * len(nics) // count for head in range(count)]


def route_options(cluster: Cluster, comm: Comm, settings: Settings, seed: int = 1) -> RouteOptions:
    """How NCCL leaves a node: over NVLink through the GPU on the receiver's rail (PXN), if there is NVLink and settings allow
    it."""
    sends = comm in (Comm.ALL_TO_ALL, Comm.SEND_RECV, Comm.GATHER, Comm.SCATTER)
    if settings.pxn and (settings.p2p_pxn or not sends) and cluster.node.scale_up.kind == "nvswitch":
        return RouteOptions(Policy.ECMP, NicChoice.PXN, seed)
    keeps = settings.cross_nic == 0 or on_rails_alone(cluster)
    return RouteOptions(Policy.ECMP, NicChoice.RAIL if keeps else NicChoice.NEAREST, seed)


def planes_apart(cluster: Cluster) -> bool:
    """Whether a connection arrives at the port that it left by."""
    return cluster.fabric.planes > 1 or cluster.fabric.nic_ports == 1


def nics_each(graph: Graph, ranks: Int32s) -> int:
    """NICs per rank over which the library stripes its messages; at least 1."""
    return max(1, int(np.diff(graph.nic_start)[ranks].min()))


def lane_paths(
    links: PlacedRanks,
    lanes: Lanes,
    key: Int32s,
    options: RouteOptions,
    part: Int32s,
    nics: int = 1,
    ports: int = 1,
    arrives: bool = True,
) -> Paths:
    """Links of each lane; `key` [K] distinguishes connections of the same two endpoints, `part` [K] numbers those of one message
    over the GPU's `nics` and the `ports` of each, and whether the port of arrival is that of leaving."""
    keys = key.astype(np.uint64)
    paths = route_by_port(links.graph, lanes.src, lanes.dst, keys, options, part, nics, ports, arrives)
    return relay_paths(links.graph, links.through, lanes, keys, options, paths) if links.through else paths


def relay_paths(
    graph: Graph,
    through: tuple[tuple[tuple[int, int], int], ...],
    lanes: Lanes,
    keys: npt.NDArray[np.uint64],
    options: RouteOptions,
    paths: Paths,
) -> Paths:
    """The paths, where those of `through` pass the GPU named there."""
    between = dict(through)
    mid = np.array([between.get(pair, -1) for pair in zip(lanes.src.tolist(), lanes.dst.tolist(), strict=True)], dtype=np.int32)
    at = np.nonzero(mid >= 0)[0]
    halves = [route(graph, a[at], b[at], keys[at], options) for a, b in ((lanes.src, mid), (mid, lanes.dst))]
    lane_paths = [paths.links[paths.start[k] : paths.start[k + 1]] for k in range(len(paths))]
    for i, k in enumerate(at.tolist()):
        lane_paths[k] = np.concatenate([half.links[half.start[i] : half.start[i + 1]] for half in halves])
    return Paths(np.cumsum([0, *map(len, lane_paths)]).astype(np.int64), np.concatenate(lane_paths).astype(np.int32))


def between_switches(graph: Graph) -> Bools:
    """[L] links from a switch of the fabric to another."""
    both: Bools = (graph.node_kind[graph.link_from] == NodeKind.SWITCH) & (graph.node_kind[graph.link_to] == NodeKind.SWITCH)
    return both


def contains_spine(cluster: Cluster, group: Group) -> bool:
    """Whether the fitted hops of a group below one leaf contain the links between switches: where messages between rails always
    cross them, since nothing can relay them inside a node (RCCL, PCIe), they were measured so."""
    return group.span in ("node", "leaf") and not may_relay(cluster)


def latencies(graph: Graph, paths: Paths, spine: bool = False) -> tuple[Floats, Floats]:
    """(own, extra) latency of each path in seconds.

    Own: links that a fitted hop contains, since it was measured below one leaf, and where it contains the `spine` all others.
    Extra: links between switches.
    """
    if spine:
        return path_sums(graph.link_latency[paths.links], paths), np.zeros(len(paths))
    between = between_switches(graph)
    own = path_sums(np.where(between, 0.0, graph.link_latency)[paths.links], paths)
    extra = path_sums(np.where(between, graph.link_latency, 0.0)[paths.links], paths)
    return own, extra


def narrow_lanes(graph: Graph, paths: Paths, lanes: Lanes) -> Lanes:
    """Lanes with rates limited by the slowest link of their path; the additional time of a slice is subtracted from its delay.

    The closed form uses all of a node's NICs for a call, however few channels it has. The fitted hops contain the additional time
    of one slice on one NIC, but not that of further slices.
    """
    rate = graph.link_rate[paths.links]
    narrow = np.full(len(paths), np.inf)
    np.minimum.at(narrow, np.repeat(np.arange(len(paths)), np.diff(paths.start)), rate)
    narrow = np.where(np.isinf(lanes.rate), np.inf, np.minimum(narrow, lanes.rate))
    slice_ = np.minimum(lanes.slice, lanes.bytes)
    longer = slice_ / narrow - slice_ / lanes.rate
    return replace(lanes, rate=narrow, delay=np.maximum(0.0, lanes.delay - longer))


def path_sums(values: Floats, paths: Paths) -> Floats:
    """[P] sum over each path of the values of its links, one after the other."""
    total = np.zeros(len(values) + 1)
    np.cumsum(values, out=total[1:])
    at = total[paths.start]
    return at[1:] - at[:-1]
