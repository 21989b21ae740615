"""A node of a cluster as NCCL's topology XML (for NCCL_TOPO_FILE), with the elements that `topology.py` reads."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.base.xml_tree import XmlNode, xml_text
from windtunnel.exports.exporters import Written
from windtunnel.formats.machines.hardware.node import PCI_GPUS
from windtunnel.spec import Cluster, Job
from windtunnel.spec.machine import Node

SM = {
    "pascal": "60",
    "volta": "70",
    "turing": "75",
    "ampere": "80",
    "ada": "89",
    "hopper": "90",
    "grace_hopper": "90",
    "blackwell": "100",
    "blackwell-rtx": "120",
}
"""Compute capability by architecture, as NCCL's `sm`."""

_SPEED = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe"}
_CPU = {
    "intel": ("x86_64", "GenuineIntel", "6", "143"),
    "amd": ("x86_64", "AuthenticAMD", "175", "17"),
    "arm": ("arm64", "ARM", "0", "0"),
    "other": ("x86_64", "AuthenticAMD", "175", "17"),
}
_SOCKETS = 2
_MOST_GPUS = 64
_SWITCH_BUS, _SWITCH_CLASS, _GPU_CLASS, _NIC_CLASS, _BRIDGE_CLASS = "0000:c5:00.0", "0x068000", "0x030200", "0x020700", "0x060400"


def export(job: Job, options: dict[str, str]) -> Written:
    """Of the job's cluster."""
    return export_cluster(job.cluster, options)


def export_cluster(cluster: Cluster, options: dict[str, str]) -> Written:
    """The XML of one node. SpecError for options, which the format has none of."""
    if options:
        raise SpecError("--option", ", ".join(options), "no option: the file follows from the cluster")
    node = cluster.node
    if node.gpu.vendor not in ("nvidia", "amd"):
        raise SpecError("cluster.node.gpu.vendor", node.gpu.vendor, "nvidia or amd: NCCL and RCCL read this file")
    if node.gpus > _MOST_GPUS:
        raise SpecError("cluster.node.gpus", node.gpus, f"at most {_MOST_GPUS}: bus addresses are made for that many")
    assumed = (
        f"{_sockets(node)} sockets, GPUs and NICs spread evenly over them, a PCIe switch for each GPU",
        "bus addresses, and the CPU's family and model",
    )
    left = ("the scale-up domain beyond the node",) if node.scale_up.size > node.gpus else ()
    return Written({f"{node.id}-topology.xml": xml_text(topology_of(node))}, left, assumed)


def topology_of(node: Node) -> XmlNode:
    """The tree of one node."""
    arch, vendor, family, model = _CPU[node.cpu_vendor]
    sockets = _sockets(node)
    count = node.nic.count if node.nic is not None else 0
    cpus = []
    for socket in range(sockets):
        bridges = []
        for gpu in range(socket * node.gpus // sockets, (socket + 1) * node.gpus // sockets):
            nics = range(gpu * count // node.gpus, (gpu + 1) * count // node.gpus)
            children = (_gpu(node, gpu), *(_nic(node, nic) for nic in nics))
            bridges.append(_pci(node, f"0000:{2 * gpu + 1:02x}:00.0", _BRIDGE_CLASS, {}, children))
        attributes = {"numaid": str(socket), "arch": arch, "vendor": vendor, "familyid": family, "modelid": model}
        cpus.append(XmlNode("cpu", attributes, tuple(bridges)))
    return XmlNode("system", {"version": "1"}, tuple(cpus))


def _sockets(node: Node) -> int:
    return _SOCKETS if node.gpus >= _SOCKETS else 1


def _bus(gpu: int) -> str:
    return f"0000:{2 * gpu + 2:02x}:00.0"


def _pci(node: Node, bus: str, kind: str, ids: dict[str, str], children: tuple[XmlNode, ...]) -> XmlNode:
    speed = _SPEED[min(max(node.pcie_gen, min(_SPEED)), max(_SPEED))]
    return XmlNode("pci", {"busid": bus, "class": kind, **ids, "link_speed": speed, "link_width": "16"}, children)


def _gpu(node: Node, gpu: int) -> XmlNode:
    ids = next((key.split(":") for key, name in PCI_GPUS.items() if name == node.gpu.id), None)
    named = {"vendor": f"0x{ids[0]}", "device": f"0x{ids[1]}"} if ids else {}
    attributes = {"dev": str(gpu), "sm": SM.get(node.gpu.architecture, "90"), "rank": str(gpu), "gdr": "1"}
    return _pci(node, _bus(gpu), _GPU_CLASS, named, (XmlNode("gpu", attributes, tuple(_links(node, gpu))),))


def _links(node: Node, gpu: int) -> list[XmlNode]:
    scale = node.scale_up
    if scale.kind in ("pcie", "ethernet", "ici"):
        return []
    if scale.kind == "nvswitch":
        return [XmlNode("nvlink", {"target": _SWITCH_BUS, "count": str(scale.links), "tclass": _SWITCH_CLASS})]
    tag, peers = "xgmi" if scale.kind == "xgmi" else "nvlink", [other for other in range(node.gpus) if other != gpu]
    links = []
    for turn, other in enumerate(sorted(peers, key=lambda peer: (peer - gpu) % node.gpus)):
        number = (turn + 1) * scale.links // len(peers) - turn * scale.links // len(peers)
        if number:
            links.append(XmlNode(tag, {"target": _bus(other), "count": str(number), "tclass": _GPU_CLASS}))
    return links


def _nic(node: Node, nic: int) -> XmlNode:
    rate = node.nic.bandwidth if node.nic is not None else 0.0
    net = {
        "name": f"mlx5_{nic}",
        "dev": str(nic),
        "speed": f"{rate * 8e-6:.0f}",
        "port": "1",
        "latency": "0.000000",
        "guid": f"0x{nic + 1:x}",
        "maxconn": "131072",
        "gdr": "1",
    }
    return _pci(node, f"0001:{nic % 256:02x}:00.{nic // 256 % 8:x}", _NIC_CLASS, {}, (XmlNode("nic", {}, (XmlNode("net", net),)),))
