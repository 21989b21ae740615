"""NCCL_TOPO_FILE: a node's topology as NCCL's XML, which says how fast the NICs and lanes of a cluster's node are."""

from __future__ import annotations

from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.base.xml_tree import read_xml
from windtunnel.formats.machines.hardware.node import NodeFacts
from windtunnel.formats.machines.nccl.topology import WANTED, node_facts
from windtunnel.spec import Job
from windtunnel.spec.machine import Cluster

VARIABLE = "NCCL_TOPO_FILE"


def with_topology(cluster: Cluster, path: str, field: str = "NCCL_TOPO_FILE") -> Cluster:
    """The cluster with the NIC rate and the PCIe generation that the XML of one of its nodes states.

    `windtunnel export nccl-topology` writes such a file. FileError for one that cannot be read; SpecError at `field` for that of
    another machine: other GPUs or another number of them, of their links or of NICs.
    """
    root = read_xml(Path(path), WANTED)
    if root.tag != "system":
        raise SpecError(field, path, "the topology of a node: an XML with <system>")
    facts, node = node_facts(root), cluster.node
    nics = node.nic.count if node.nic is not None else 0
    for what, found, own in _claims(facts, cluster, nics):
        if found != own:
            raise SpecError(
                field, path, f"the topology of a node of {cluster.id}: {what} {own}", f"The file has {found}. Write one with: "
                f"windtunnel export nccl-topology {cluster.id}",
            )  # fmt: skip
    changed: dict[str, object] = {}
    if facts.pcie_gen is not None:
        changed["pcie_gen"] = facts.pcie_gen
    if facts.nic_rate is not None and node.nic is not None:
        changed["nic"] = node.nic.model_copy(update={"bandwidth": facts.nic_rate})
    return cluster.model_copy(update={"node": node.model_copy(update=changed)})


def with_files(job: Job) -> Job:
    """The job with NCCL_TOPO_FILE of its NCCL variables put on its cluster's node. Raises as `with_topology`."""
    path = job.runtime.nccl.get(VARIABLE)
    if path is None:
        return job
    cluster = with_topology(job.cluster, str(path), f"runtime.nccl.{VARIABLE}")
    rest = {name: value for name, value in job.runtime.nccl.items() if name != VARIABLE}
    return job.model_copy(update={"cluster": cluster, "runtime": job.runtime.model_copy(update={"nccl": rest})})


def _claims(facts: NodeFacts, cluster: Cluster, nics: int) -> list[tuple[str, object, object]]:
    """(what, in the file, of the cluster) of everything that the file states."""
    node = cluster.node
    claims: list[tuple[str, object, object]] = [("GPUs:", facts.gpus, node.gpus), ("NICs:", facts.nics, nics)]
    if facts.gpu is not None:
        claims.append(("GPU", facts.gpu, node.gpu.id))
    if facts.kind is not None:
        claims.append(("links between GPUs:", facts.kind, node.scale_up.kind))
    if facts.links and node.scale_up.links > 1:
        claims.append(("links of a GPU:", facts.links, node.scale_up.links))
    return claims
