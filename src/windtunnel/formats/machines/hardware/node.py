"""A node as its own tools describe it → a cluster: what is known replaces the fields of a cluster of the catalogue."""

from __future__ import annotations

from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import UnknownName
from windtunnel.formats.reading import Context
from windtunnel.spec import load_cluster, match_gpu
from windtunnel.spec.loading.files import names
from windtunnel.spec.machine import Cluster, Nic, ScaleUp
from windtunnel.spec.pcie import nearest_pcie

PCI_GPUS = {
    "10de:1db1": "v100-sxm2-16gb", "10de:1db5": "v100-sxm2-32gb", "10de:1db8": "v100-sxm3-32gb", "10de:20b0": "a100-sxm-40gb",
    "10de:20b2": "a100-sxm-80gb", "10de:20f1": "a100-pcie-40gb", "10de:20b5": "a100-pcie-80gb", "10de:2330": "h100-sxm-80gb",
    "10de:2331": "h100-pcie-80gb", "10de:2335": "h200-sxm-141gb", "10de:2324": "h800-sxm-80gb", "10de:2329": "h20",
    "10de:20f3": "a800-sxm-80gb", "10de:2235": "a40", "10de:2321": "h100-nvl-94gb", "10de:2342": "gh200",
    "10de:26b9": "l40s", "10de:2901": "b200-sxm-180gb", "10de:2941": "gb200-nvl72", "10de:3182": "b300-sxm",
    "10de:31c2": "gb300-nvl72", "1002:740c": "mi250x", "1002:7408": "mi250x", "1002:740f": "mi210",
    "1002:74a1": "mi300x", "1002:74a5": "mi325x",
}  # fmt: skip
"""Catalogue ids by PCI vendor and device (pci.ids of pciutils; NVIDIA's list of supported GPUs);
the same number means one board, not one product line."""

_BY_LINKS = {6: "v100-sxm2-32gb", 12: "a100-sxm-80gb", 18: "h100-sxm-80gb"}
"""The GPU that is assumed where only the number of its NVLinks is known."""
_COHERENT = {6: "gh200", 18: "gb200-nvl72"}
"""The same where GPUs are NUMA nodes: four GH200 of a node are joined by 6 links each, those of an NVL72 by 18 to its switches."""

_NVLINK = {"pascal": 20e9, "volta": 25e9, "ampere": 25e9, "hopper": 25e9, "blackwell": 50e9}
"""B/s of an NVLink each way by architecture (NVIDIA's data sheets)."""

MOST_LINKS = 18
"""NVLinks of a GPU, up to NVLink 5. A matrix in which all pairs of a node have more in sum shows a switch."""


@dataclass(frozen=True)
class NodeFacts:
    """What is known of a node. None and 0 where the source does not say. `gpu` is an id of the catalogue; rates in B/s each way."""

    gpus: int
    gpu: str | None = None
    links: int = 0  # NVLinks or xGMI links of a GPU
    kind: str | None = None  # a ScaleUp.kind
    nics: int = 0
    nic_rate: float | None = None
    pcie_gen: int | None = None
    cpu_vendor: str | None = None
    printed: str = ""  # the GPU's name as the source has it
    coherent: bool = False  # GPUs are NUMA nodes of the host's memory, as those behind a Grace CPU


def gpu_of_name(printed: str) -> str | None:
    """The catalogue's GPU for a name that a tool printed; None for one that it lacks."""
    for text in (printed, printed.rsplit("-", 1)[0], printed.removeprefix("NVIDIA ").removeprefix("Tesla ")):
        try:
            return match_gpu(text).id
        except UnknownName:
            continue
    return None


def cluster_of(node: NodeFacts, context: Context, source: str) -> tuple[Cluster | dict[str, Any], list[str], list[str]]:
    """(cluster, built, assumed): the user's cluster, else the first of the catalogue with that GPU, with the node's own figures.

    A table of the known fields where neither the user nor the source names a GPU of the catalogue.
    """
    assumed: list[str] = []
    base = _base(node, context, assumed)
    if base is None:
        known = {"gpus": node.gpus, "nics": node.nics, "links": node.links, "kind": node.kind}
        reason = f"no cluster of the catalogue has {node.gpu}"
        if node.gpu is None:
            reason = f"the catalogue lacks the GPU {node.printed!r}" if node.printed else "the GPU is not known"
        return {"node": {key: value for key, value in known.items() if value}}, [], [f"{reason}: add --cluster CLUSTER"]
    own, built = base.node, [f"a node of {node.gpus} {base.gpu.name}"]
    update: dict[str, Any] = {
        "gpus": node.gpus,
        "id": f"{own.id}-from-{_short_id(source)}",
        "source": f"{source}; the rest: {own.id}",
    }
    update["scale_up"] = _scale_up(node, base, built, assumed)
    if node.nics:
        rate = node.nic_rate or (own.nic.bandwidth if own.nic is not None else None)
        if rate is None:
            assumed.append(f"{node.nics} NICs of unknown rate are left out")
        else:
            update["nic"] = Nic.model_validate({"count": node.nics, "bandwidth": f"{rate!r}B/s per NIC each way", "source": source})
            built.append(f"{node.nics} NICs of {rate * 8e-9:g} Gb/s")
            if node.nic_rate is None:
                assumed.append(f"rate of a NIC: {own.id}'s {rate * 8e-9:g} Gb/s")
    elif own.nic is not None:
        assumed.append(f"NICs: {own.id}'s {own.nic.count} of {own.nic.bandwidth * 8e-9:g} Gb/s")
    if node.pcie_gen is not None:
        built.append(f"PCIe generation {node.pcie_gen}")
        update["pcie_gen"] = node.pcie_gen
    if node.cpu_vendor in ("intel", "amd", "arm"):
        update["cpu_vendor"] = node.cpu_vendor
    assumed.append(f"host memory, storage, power, fabric and size: those of {base.id}")
    nodes = max(1, base.gpus // base.node.gpus)
    cluster = base.model_copy(
        update={"id": f"{base.id}-from-{_short_id(source)}", "node": own.model_copy(update=update), "gpus": nodes * node.gpus}
    )
    return cluster, built, assumed


def _base(node: NodeFacts, context: Context, assumed: list[str]) -> Cluster | None:
    """The cluster whose fields stand where the source is silent."""
    if context.cluster is not None or context.on is not None:
        cluster = load_cluster(context.cluster) if context.cluster is not None else context.on.cluster if context.on else None
        if cluster is not None and node.gpu is not None and cluster.gpu.id != node.gpu:
            assumed.append(f"GPU {cluster.gpu.id}, though the source names {node.gpu}")
        return cluster
    gpu = node.gpu
    if gpu is None and node.kind in ("nvswitch", "nvlink_mesh"):
        gpu = (_COHERENT if node.coherent else _BY_LINKS).get(node.links)
        if gpu is not None:
            behind = " behind a Grace CPU" if node.coherent else ""
            assumed.append(f"GPU {gpu}, from {node.links} NVLinks{behind}; --cluster CLUSTER says another")
    if gpu is None:
        return None
    same = [cluster for cluster in map(load_cluster, names("clusters")) if cluster.gpu.id == gpu]
    if not same:
        from windtunnel.spec import load_gpu

        alike = [c for c in map(load_cluster, names("clusters")) if gpu.split("-")[0] == c.gpu.id.split("-")[0]]
        if not alike:
            return None
        known = load_gpu(gpu) if gpu in names("gpus") else alike[0].gpu
        same = [alike[0].model_copy(update={"node": alike[0].node.model_copy(update={"gpu": known})})]
        assumed.append(f"GPU {known.id} for {gpu}" if known.id != gpu else f"GPU {gpu} in a node of {alike[0].id}")
    return min(same, key=lambda cluster: (not cluster.id.endswith("-ib"), cluster.id))


def _scale_up(node: NodeFacts, base: Cluster, built: list[str], assumed: list[str]) -> ScaleUp:
    own, pcie_gen, architecture = base.node.scale_up, base.node.pcie_gen, base.gpu.architecture
    if node.kind is None or (node.kind != "pcie" and not node.links):
        assumed.append(f"links between GPUs: {own.kind}, {own.bandwidth * 1e-9:g} GB/s a GPU each way")
        return own if own.size > node.gpus and own.kind != "pcie" else own.model_copy(update={"size": node.gpus})
    if node.kind == "pcie":
        rate = nearest_pcie(node.pcie_gen or pcie_gen).peer
        built.append("GPUs joined by PCIe")
        stated = {"kind": "pcie", "size": node.gpus, "bandwidth": f"{rate!r}B/s per GPU each way", "source": "PCIe of the node"}
        return ScaleUp.model_validate(stated)
    each = own.bandwidth / own.links if own.kind != "pcie" else _NVLINK.get(architecture, 25e9)
    built.append(f"{node.kind}: {node.links} links a GPU, {each * node.links * 1e-9:g} GB/s each way")
    assumed.append(
        f"{each * 1e-9:g} GB/s a link each way, {'as of ' + architecture if own.kind == 'pcie' else 'as in the cluster behind it'}"
    )
    size = own.size if own.size > node.gpus and node.kind == own.kind else node.gpus
    reduction = own.in_switch_reduction and node.kind == "nvswitch"
    return own.model_copy(
        update={
            "kind": node.kind,
            "size": size,
            "links": node.links,
            "bandwidth": each * node.links,
            "in_switch_reduction": reduction,
        }
    )


def _short_id(source: str) -> str:
    """A word for ids: letters, digits and dashes of a source's name."""
    return "".join(c if c.isalnum() else "-" for c in source.rsplit("/", 1)[-1])[:40].strip("-") or "file"
