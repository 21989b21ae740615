"""The channels of a node of a cluster as NCCL's graph XML (what NCCL_GRAPH_DUMP_FILE writes, for NCCL_GRAPH_FILE)."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.base.xml_tree import XmlNode, xml_text
from windtunnel.exports.exporters import Written
from windtunnel.network.nccl.graph_file import NVLS, RING, TREE
from windtunnel.network.nccl.search import PATTERNS, SearchedGraph, search_graphs
from windtunnel.spec import Cluster, Job

_IDS = {"ring": RING, "tree": TREE, "balanced_tree": TREE, "nvls": NVLS}


def export(job: Job, options: dict[str, str]) -> Written:
    """Of the job's cluster; options as of `export_cluster`."""
    return export_cluster(job.cluster, options)


def export_cluster(cluster: Cluster, options: dict[str, str]) -> Written:
    """`nodes`: 1 for a dump of calls inside one node; left out, of all nodes of the cluster. SpecError for another option and for
    GPUs that NCCL does not run on."""
    for name in options:
        if name != "nodes":
            raise SpecError("--option", name, "nodes=…")
    node = cluster.node
    nodes = options.get("nodes", str(-(-cluster.gpus // node.gpus)))
    if not (nodes.isascii() and nodes.isdecimal() and 1 <= int(nodes[:7]) <= 1_000_000):
        raise SpecError("--option nodes", nodes, "a whole number, at least 1")
    if node.gpu.vendor != "nvidia":
        raise SpecError("cluster.node.gpu.vendor", node.gpu.vendor, "nvidia: the search is NCCL's")
    if int(nodes) > 1 and node.nic is None:
        raise SpecError("--option nodes", nodes, f"1: {cluster.id} has no NICs")
    graphs = search_graphs(node, int(nodes))
    text = xml_text(XmlNode("graphs", {"version": "1"}, tuple(_graph(one) for one in graphs)))
    assumed = ("paths are the shortest, and links as wide as NCCL counts them; the order of GPUs is NCCL's on NVSwitches",)
    left = ("CollNet (graph 2)", *(("GPUs of the domain beyond the node",) if node.scale_up.size > node.gpus else ()))
    return Written({f"{node.id}-graph.xml": text}, left, assumed)


def _graph(found: SearchedGraph) -> XmlNode:
    attributes = {
        "id": str(_IDS[found.pattern]), "pattern": str(PATTERNS[found.pattern]), "crossnic": "0", "nchannels": str(found.channels),
        "speedintra": f"{found.intra:g}", "speedinter": f"{found.inter:g}", "latencyinter": "0", "typeintra": found.type_intra,
        "typeinter": found.type_inter, "samechannels": str(int(len(set(found.orders)) == 1)),
    }  # fmt: skip
    channels = []
    for i, order in enumerate(found.orders):
        gpus = [XmlNode("gpu", {"dev": str(gpu), "rank": str(gpu)}) for gpu in order]
        ends = [XmlNode("net", {"dev": str(net)}) for net in found.nets[i]] if found.nets else []
        channels.append(XmlNode("channel", {}, tuple([*ends[:1], *gpus, *ends[1:]])))
    return XmlNode("graph", attributes, tuple(channels))
