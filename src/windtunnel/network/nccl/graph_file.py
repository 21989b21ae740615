"""NCCL_GRAPH_FILE: the channels that a dump of NCCL's search states (NCCL_GRAPH_DUMP_FILE, or `windtunnel export nccl-graph`).

`graphs > graph > channel > net, gpu…, net`. Graph 0 is the ring, 1 the tree, 3 the switch reduction. A channel lists the GPUs of a
node from the one beside the NIC where it enters. NCCL takes a file as it is: numbers of channels are those after its doubling.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.xml_tree import XmlNode, read_xml
from windtunnel.spec.machine import Cluster

WANTED = "a dump of NCCL's graph search: an XML with <graphs>"
RING, TREE, NVLS = 0, 1, 3
_MOST = 64


@dataclass(frozen=True)
class DumpedGraph:
    """One graph. GB/s of a channel inside a node and between nodes; for each channel its GPUs in order, and its NICs."""

    pattern: int
    intra: float
    inter: float
    orders: tuple[tuple[int, ...], ...]
    nets: tuple[tuple[int, int], ...]
    """Where each channel enters and leaves a node; empty for a dump of one node."""


@dataclass(frozen=True)
class DumpedGraphs:
    """The graphs of a file, and where it was named."""

    field: str
    path: str
    ring: DumpedGraph
    tree: DumpedGraph | None

    @property
    def gpus(self) -> int:
        """GPUs of a node."""
        return len(self.ring.orders[0])

    def of(self, trees: bool) -> DumpedGraph:
        """The graph that an algorithm runs on; `trees`: along trees."""
        return self.tree if trees and self.tree is not None else self.ring


def read_graphs(path: str, field: str) -> DumpedGraphs:
    """The graphs of a file. FileError for one that cannot be read, SpecError at `field` for one that is no dump of a whole node."""
    return _read(path, field)


@lru_cache(maxsize=32)
def _read(path: str, field: str) -> DumpedGraphs:
    try:
        root = read_xml(Path(path), WANTED)
    except FileError as error:
        raise FileError(field, error.got, error.allowed, f"In {path}. {error.hint}".rstrip()) from None
    if root.tag != "graphs":
        raise SpecError(field, path, WANTED, f"This one has <{root.tag}>. NCCL_TOPO_FILE takes <system>.")
    found = {graph.get("id"): graph for graph in root.children if graph.tag == "graph"}
    if str(RING) not in found:
        raise SpecError(field, path, 'a file with the ring: <graph id="0">')
    ring = _graph(found[str(RING)], field, path)
    tree = _graph(found[str(TREE)], field, path) if found.get(str(TREE), XmlNode("")).children else None
    if tree is not None and sorted(tree.orders[0]) != sorted(ring.orders[0]):
        raise SpecError(field, path, "the same GPUs in ring and tree", f"Tree: {sorted(tree.orders[0])}.")
    return DumpedGraphs(field, path, ring, tree)


def _graph(node: XmlNode, field: str, path: str) -> DumpedGraph:
    where = f"{path}: graph {node.get('id')}"
    channels = [child for child in node.children if child.tag == "channel"]
    orders = tuple(tuple(round(sub.number("dev")) for sub in one.children if sub.tag == "gpu") for one in channels)
    nets = tuple(tuple(round(sub.number("dev")) for sub in one.children if sub.tag == "net") for one in channels)
    if not 1 <= len(channels) <= _MOST or node.number("nchannels") != len(channels):
        raise SpecError(field, where, f"from 1 to {_MOST} channels, as many as nchannels says", f"There are {len(channels)}.")
    if any(len(set(order)) != len(order) or sorted(order) != sorted(orders[0]) for order in orders) or not orders[0]:
        raise SpecError(field, where, "every GPU once in each channel")
    if len({len(one) for one in nets}) != 1 or len(nets[0]) not in (0, 2):
        raise SpecError(field, where, "two <net> in each channel, or none in any")
    speeds = node.number("speedintra"), node.number("speedinter")
    if min(speeds) <= 0.0:
        raise SpecError(field, where, "speedintra and speedinter above 0, in GB/s")
    both = tuple((one[0], one[1]) for one in nets) if nets[0] else ()
    return DumpedGraph(round(node.number("pattern")), *speeds, orders, both)


def gpu_beside(nic: int, gpus: int, nics: int) -> int:
    """The first GPU that has this NIC of a node as its nearest."""
    return -(-nic * gpus // nics) if nics <= gpus else nic * gpus // nics


def check_graphs(graphs: DumpedGraphs, cluster: Cluster) -> None:
    """SpecError at the file's field where its GPUs or NICs are not those of the cluster's node."""
    node = cluster.node
    nics = node.nic.count if node.nic is not None else 0
    hint = f"Write one with: windtunnel export nccl-graph {cluster.id}"
    for graph in (graphs.ring, graphs.tree):
        if graph is None:
            continue
        if sorted(graph.orders[0]) != list(range(node.gpus)):
            raise SpecError(
                graphs.field, graphs.path, f"a dump of a node of {cluster.id}: GPUs 0 to {node.gpus - 1}",
                f"The file has {', '.join(map(str, sorted(graph.orders[0])))}. {hint}",
            )  # fmt: skip
        for order, nets in zip(graph.orders, graph.nets, strict=False):
            if max(nets) >= max(nics, 1) or min(nets) < 0:
                raise SpecError(
                    graphs.field, graphs.path, f"a dump of a node of {cluster.id}: NICs 0 to {nics - 1}",
                    f"A channel has NIC {max(nets)}. {hint}",
                )  # fmt: skip
            beside = gpu_beside(nets[0], node.gpus, nics)
            if order[0] * min(nics, node.gpus) // node.gpus != beside * min(nics, node.gpus) // node.gpus:
                raise SpecError(
                    graphs.field, graphs.path, "channels whose first GPU is beside their first NIC",
                    f"A channel from NIC {nets[0]} begins with GPU {order[0]}; GPU {beside} is beside it.",
                )  # fmt: skip
