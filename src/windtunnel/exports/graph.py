"""A cluster's link graph as TOML, which `cluster.fabric.builder = "file:PATH"` and `windtunnel flows --fabric` read."""

from __future__ import annotations

import json

from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.exports.exporters import Written
from windtunnel.network.fabrics import cluster_graph
from windtunnel.spec import Cluster, Job

_MOST_LINKS = 2_000_000


def export(job: Job, options: dict[str, str]) -> Written:
    """Of the job's cluster."""
    return export_cluster(job.cluster, options)


def export_cluster(cluster: Cluster, options: dict[str, str]) -> Written:
    """The graph of the cluster's nodes, with line rates between them. SpecError for options, which the format has none of."""
    if options:
        raise SpecError("--option", ", ".join(options), "no option: the graph follows from the cluster")
    graph = cluster_graph(cluster).graph
    if graph.links > _MOST_LINKS:
        raise SpecError("cluster.gpus", cluster.gpus, f"a graph of at most {_MOST_LINKS} links", f"This one has {graph.links}.")
    left = ("routing, congestion control, efficiency and buffers: fields of cluster.fabric",)
    return Written({f"{cluster.id}-graph.toml": graph_text(graph, cluster.fabric.efficiency)}, left)


def graph_text(graph: Graph, share: float = 1.0) -> str:
    """The graph as `load_graph` reads it; links of the fabric carry `share` of the line rate that is written."""
    names = [graph.name(node) for node in range(graph.nodes)]
    rows = ["nodes = ["]
    for node, name in enumerate(names):
        site = f", site = {graph.node_site[node]}" if graph.node_site[node] >= 0 else ""
        rows.append(f'  {{name = {json.dumps(name)}, kind = "{NodeKind(int(graph.node_kind[node])).name.lower()}"{site}}},')
    rows += ["]", "links = ["]
    between = (graph.node_site[graph.link_from] < 0) | (graph.node_site[graph.link_to] < 0)
    for link in range(0, graph.links, 2):
        rate = float(graph.link_rate[link]) / (share if between[link] else 1.0)
        axis = f", axis = {graph.link_axis[link]}" if graph.link_axis[link] >= 0 else ""
        state = "" if graph.link_up[link] else ", up = false"
        state = ", one_way = true" if graph.link_up[link] and not graph.link_up[link + 1] else state
        ends = f"from = {json.dumps(names[graph.link_from[link]])}, to = {json.dumps(names[graph.link_to[link]])}"
        rows.append(f'  {{{ends}, rate = "{rate!r}B/s", latency = "{float(graph.link_latency[link])!r}s"{axis}{state}}},')
    rows += ["]", "endpoints = ["]
    for end, node in enumerate(graph.endpoint.tolist()):
        nics = ", ".join(json.dumps(names[nic]) for nic in graph.nics[graph.nic_start[end] : graph.nic_start[end + 1]])
        rail = f", rail = {graph.rail[end]}" if graph.rail[end] >= 0 else ""
        rows.append(f"  {{node = {json.dumps(names[node])}, nics = [{nics}]{rail}}},")
    return "\n".join([*rows, "]"]) + "\n"
