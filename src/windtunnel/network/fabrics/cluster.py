"""The graph of a catalogue cluster, for as many nodes as a job uses.

Links between nodes have payload rates: line rate times the fabric's `efficiency` (headers, gaps, message pipelining), so that a
transfer takes bytes over rate. NVLink and PCIe have their full rates; the caller accounts for protocols (lanes have a rate).
Up-links are sized for full leaves and pods, also if the job fills only a part of them.

Placement: the GPU on which each rank of a job runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Int32s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.network.fabrics.clos import cores, leaves, spines, up_links
from windtunnel.network.fabrics.columns import Columns, with_endpoints
from windtunnel.network.fabrics.drawn import check_room, drawing_of, levels_of
from windtunnel.network.fabrics.parameters import Builder, count, word
from windtunnel.network.fabrics.server import Inside, add_servers, ends

if TYPE_CHECKING:
    from windtunnel.spec.machine import Cluster, Fabric


def _place_packed(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """Rank r on GPU r: node by node."""
    return np.arange(len(home), dtype=np.int32)


def _rail(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """All GPUs of rail 0, node by node, then those of rail 1, ...: neighbours share a rail."""
    return np.lexsort((np.arange(len(home)), rail)).astype(np.int32)


def _pod(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """One node of each pod in turn: the nodes of a group are spread over the pods."""
    return _dealt(home, pod)


def _leaf(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """One node of each leaf in turn."""
    return _dealt(home, leaf)


def _random(home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s, seed: int) -> Int32s:
    """Nodes in random order, GPUs of a node together: the placement of a scheduler that ignores topology."""
    position = np.random.default_rng(seed).permutation(int(home.max()) + 1)
    return np.lexsort((np.arange(len(home)), position[home])).astype(np.int32)


def _dealt(home: Int32s, block: Int32s) -> Int32s:
    """Nodes ordered by their place in their block, then by block."""
    first = np.concatenate([[0], np.cumsum(np.bincount(block[np.unique(home, return_index=True)[1]]))])
    within = home - first[block]
    return np.lexsort((np.arange(len(home)), block, within)).astype(np.int32)


PLACEMENTS: dict[str, Callable[[Int32s, Int32s, Int32s, Int32s, int], Int32s]] = {
    "packed": _place_packed, "rail": _rail, "pod": _pod, "leaf": _leaf, "random": _random,
}  # fmt: skip
"""Name -> (node, leaf, pod, rail of each GPU, seed) -> GPU of each rank."""


def place(text: str, home: Int32s, leaf: Int32s, pod: Int32s, rail: Int32s) -> Int32s:
    """GPU of each rank [ranks]: `packed`, `rail`, `leaf`, `pod`, `random:SEED`, or `list:4,0,1,...` with a GPU for each rank.

    A list may be shorter than the machine. Raises UnknownName for another word, SpecError for a seed or list that is wrong.
    """
    name, _, rest = text.partition(":")
    if name == "list":
        return _place_given(rest, len(home))
    if name not in PLACEMENTS:
        raise UnknownName("placement", name, [*PLACEMENTS, "list"])
    try:
        seed = int(rest) if rest else 1
    except ValueError:
        seed = -1
    if seed < 0:
        raise SpecError("placement", text, "a seed that is a whole number, such as random:1")
    return PLACEMENTS[name](home, leaf, pod, rail, seed)


def _place_given(text: str, gpus: int) -> Int32s:
    try:
        gpu_of_rank = np.array([int(part) for part in text.split(",")], np.int64)
    except (ValueError, OverflowError):
        raise SpecError("placement", text, "GPU numbers with commas, such as list:0,8,16") from None
    if (gpu_of_rank < 0).any() or (gpu_of_rank >= gpus).any() or len(np.unique(gpu_of_rank)) != len(gpu_of_rank):
        raise SpecError("placement", text, f"different GPUs from 0 to {gpus - 1}")
    return gpu_of_rank.astype(np.int32)


@dataclass(frozen=True)
class ClusterGraph:
    """A cluster's link graph, and where ranks and endpoints sit in it."""

    graph: Graph
    endpoint: Int32s
    """[ranks] the graph's endpoint (a GPU) on which each rank runs; endpoints are numbered node by node."""
    node: Int32s
    """[endpoints] node of each endpoint."""
    leaf: Int32s
    """[endpoints] leaf switch of each endpoint."""
    pod: Int32s
    """[endpoints] pod of each endpoint."""
    domain: int
    """GPUs that share one site."""
    storage: Int32s = field(default_factory=lambda: np.zeros(0, np.int32))
    """[servers] endpoints of storage servers, behind those of the GPUs."""


def cluster_graph(cluster: Cluster, nodes: int | None = None, placement: str = "packed") -> ClusterGraph:
    """Graph of `nodes` nodes (left out: all of the cluster's), ranks placed as `placement` says (see `PLACEMENTS`).

    Raises SpecError for several nodes of a cluster without NICs or fabric, or without ports for them.
    """
    node, fabric = cluster.node, cluster.fabric
    many = nodes if nodes is not None else -(-cluster.gpus // node.gpus)
    if many < 1:
        raise SpecError("nodes", nodes, "at least one node")
    inside = Inside.of(node, cluster.domain)
    columns = Columns()
    servers = add_servers(columns, inside, many)
    trays = max(1, inside.domain // inside.gpus)
    if many > trays and (node.nic is None or fabric.topology == "none"):
        raise SpecError("nodes", many, f"at most {trays}: {cluster.id} has no network between nodes")
    stores = np.zeros(0, np.int32)
    drawing = drawing_of(cluster) if many > trays else None
    if drawing is not None and node.nic is not None:
        check_room(cluster, many)
        drawing.attach(columns, servers.nics, node.nic.bandwidth, fabric.efficiency)
    elif node.nic is not None and fabric.topology not in ("none", "graph"):
        lowest = _fabric(columns, fabric, node.nic.bandwidth * fabric.efficiency, servers.nics)
        stores = _storage(columns, fabric, lowest)
    graph = ends(columns, servers)
    gpus = graph.endpoints
    if len(stores):
        graph = with_endpoints(graph, stores)
    home = np.repeat(np.arange(many, dtype=np.int32), inside.gpus)
    levels = levels_of(cluster)
    leaf, pod = home // levels.leaf_nodes, home // levels.pod_nodes
    ranks = place(placement, home, leaf, pod, graph.rail[:gpus])
    storage = gpus + np.arange(len(stores), dtype=np.int32)
    return ClusterGraph(graph, ranks, home, leaf, pod, max(inside.gpus, inside.domain), storage)


def _storage(columns: Columns, fabric: Fabric, lowest: Int32s) -> Int32s:
    """Storage servers as hosts on the `lowest` switches [groups, switches of a set], one set after the other."""
    if fabric.storage is None:
        return np.zeros(0, np.int32)
    number = np.arange(fabric.storage.servers)
    hosts = columns.nodes(NodeKind.HOST, [f"storage{n}" for n in number.tolist()])
    groups, width = lowest.shape
    rate = fabric.storage.bandwidth * fabric.efficiency
    columns.cables(hosts, lowest[number % groups, number // groups % width], rate, fabric.hop_latency)
    return hosts


def _fabric(columns: Columns, fabric: Fabric, rate: float, nics: Int32s) -> Int32s:
    """Leaves, and the tiers above them that the job reaches; each port of a NIC (together `rate` B/s) has leaves of its own.
    Returns the leaves of the first port [groups, switches of a set]."""
    hop, rail = fabric.hop_latency, fabric.topology in ("rail", "rail_only")
    ports = fabric.nic_ports
    sets = [
        leaves(columns, nics, fabric.leaf_nodes, rail, rate / ports, hop, "leaf" if ports == 1 else f"leaf{port}-")
        for port in range(ports)
    ]
    below = fabric.leaf_nodes * (1 if rail else nics.shape[1]) * rate / ports
    up, up_rate = up_links(below, rate / ports * fabric.uplink_ratio, fabric.oversubscription)
    separate = fabric.planes > 1
    pod_sets = max(1, fabric.pod_nodes // fabric.leaf_nodes)
    joined = list(enumerate(sets if separate else [np.concatenate(sets, axis=1)]))
    trees = [(f"{tag}-" if separate else "", switches) for tag, switches in joined]
    if fabric.topology == "rail_only":  # rail j has column j of every set of leaves, of all ports unless planes are apart
        width = nics.shape[1]
        trees = [(f"{label}rail{j}-", switches[:, j::width]) for label, switches in trees for j in range(width)]
    for label, switches in trees:
        if len(switches) == 1 and (switches.size == 1 or fabric.topology == "rail_only"):
            continue
        rows = [switches[i : i + pod_sets].reshape(1, -1) for i in range(0, len(switches), pod_sets)]
        pods = [
            spines(columns, row, up, up_rate, hop, name=f"spine{label}" if len(rows) == 1 else f"pod{p}.spine{label}")
            for p, row in enumerate(rows)
        ]
        if len(rows) > 1:
            full = pod_sets * switches.shape[1] * up_rate
            core_up, core_rate = up_links(full, up_rate, fabric.pod_oversubscription)
            cores(columns, np.concatenate(pods), core_up, core_rate, hop, name=f"core{label}")
    return sets[0]


@dataclass(frozen=True)
class ClusterFabric(Builder):
    """A catalogue cluster's servers and fabric; rates between nodes are payload rates."""

    NAME = "cluster"
    name: str = word("h100-ib", "catalogue cluster")
    nodes: int = count(16, "nodes of it", 1, 65_536)

    def build(self) -> Graph:
        from windtunnel.spec.loading.load import load_cluster  # here: most builders need no noun

        return cluster_graph(load_cluster(self.name), self.nodes).graph
