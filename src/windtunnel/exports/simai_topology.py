"""A cluster as SimAI's topology: GPUs, an NVSwitch a server, leaf switches and spines."""

from __future__ import annotations

import math

from windtunnel.base.errors import SpecError
from windtunnel.exports.exporters import Written
from windtunnel.formats.simulators.simai.topology import NODES, SimaiLink, SimaiTopology, links_of, topology_text
from windtunnel.network.fabrics.drawn import is_drawn
from windtunnel.spec import Cluster, Job

NVLINK_DELAY = "0.000025ms"
"""Of SimAI's own templates."""


def export(job: Job, options: dict[str, str]) -> Written:
    """Of the job's cluster; options as of `export_cluster`."""
    return export_cluster(job.cluster, options)


def export_cluster(cluster: Cluster, options: dict[str, str]) -> Written:
    """`type`: SimAI's name of the GPU, where ours is none that it knows."""
    for name in options:
        if name != "type":
            raise SpecError("--option", name, "type=…")
    known = next((kind for kind in NODES if kind.lower() in cluster.gpu.id.lower()), "")
    kind = options.get("type", known or "H100")
    if kind not in NODES:
        raise SpecError("--option type", kind, ", ".join(NODES))
    topology = topology_of(cluster, kind)
    assumed = ["one NVSwitch a server; a GPU's share of the NICs is one link; every leaf has a link to every spine"]
    if not known and "type" not in options:
        assumed.append(f"GPU type {kind}: SimAI does not know {cluster.gpu.id}")
    left = ("planes, ports of a NIC and tiers above the spines", "routing, congestion control and efficiency: SimAI.conf has them")
    return Written({"topology": topology_text(topology)}, left, tuple(assumed))


def topology_of(cluster: Cluster, kind: str) -> SimaiTopology:
    """SpecError for a cluster without NICs or with a part of a node."""
    node, fabric = cluster.node, cluster.fabric
    if is_drawn(fabric) or fabric.topology == "rail_only":
        raise SpecError("cluster.fabric", fabric.builder or fabric.topology, "leaves and spines that join all rails",
                        "`windtunnel export graph` writes any fabric.")  # fmt: skip
    gpus, per = cluster.gpus, min(cluster.gpus, node.gpus)
    if gpus % per or (node.nic is None and gpus > per):
        raise SpecError("cluster", cluster.id, f"whole nodes of {per} GPUs, with NICs where there are several")
    servers = gpus // per
    rails = per if fabric.topology == "rail" else 1
    segments = -(-servers // fabric.leaf_nodes)
    leaves = rails * segments if node.nic is not None else 0
    below = min(servers, fabric.leaf_nodes) * per // rails
    spines = max(1, math.ceil(below / fabric.oversubscription - 1e-9)) if leaves > 1 else 0
    first_leaf, first_spine = gpus + servers, gpus + servers + leaves
    links: list[SimaiLink] = []
    links += links_of(((gpu, gpus + gpu // per) for gpu in range(gpus)), node.scale_up.bandwidth * 8, NVLINK_DELAY)
    if node.nic is not None:
        rate = node.nic.bandwidth * node.nic.count / node.gpus * 8
        delay = f"{fabric.hop_latency * 1e3:.9g}ms"
        out = ((gpu, first_leaf + gpu // per // fabric.leaf_nodes * rails + gpu % per % rails) for gpu in range(gpus))
        links += links_of(out, rate, delay)
        up = below * rate / fabric.oversubscription / spines if spines else 0.0
        links += links_of(((first_leaf + a, first_spine + b) for a in range(leaves) for b in range(spines)), up, delay)
    nodes = gpus + servers + leaves + spines
    return SimaiTopology(nodes, per, servers, leaves + spines, len(links), kind, tuple(range(gpus, nodes)), tuple(links))
