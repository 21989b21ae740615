"""NCCL's and RCCL's topology XML (NCCL_TOPO_DUMP_FILE, or a provider's file) → a node; their graph XML (NCCL_GRAPH_DUMP_FILE).

`system > cpu > pci… > gpu > nvlink | xgmi | c2c` and `nic > net` (`src/graph/xml.cc`). `net speed` is in Mb/s,
`link_speed` in GT/s a lane. A provider's file may hold only cpu and pci: classes 0x03…, 0x1200… (GPU), 0x0207… and 0x0200… (NIC)
then count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.xml_tree import XmlNode, read_xml
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.node import PCI_GPUS, NodeFacts, cluster_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import add_facts

WANTED = "an XML of NCCL: a <system> or <graphs>"
PCI_GENERATION = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6, "64.0": 6}
"""By GT/s of a lane, as sysfs prints it (PCI-SIG base specifications)."""

_ROOT = re.compile(r"^\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--(?:(?!-->).)*+-->\s*+)*+<(system|graphs)\s[^>]*version=", re.DOTALL)
_GPU_CLASSES, _NIC_CLASSES, _SWITCH = ("0x03", "0x1200"), ("0x0207", "0x0200"), "0x068000"


def recognises(head: Head) -> bool:
    """The root of a topology or of a graph file."""
    return _ROOT.match(head.text) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """A node from a topology; counts and channels from a graph file beside it. FileError for other XML."""
    trees = [(path, read_xml(path, WANTED)) for path in files]
    facts: dict[str, Any] = {}
    ignored: list[str] = []
    for path, root in trees:
        own = _counts(root) | (_graphs(root) if root.tag == "graphs" else {})
        add_facts(facts, path, own)
    systems = [(path, root) for path, root in trees if root.tag == "system"]
    if not systems:
        built = (f"{facts['tags'].get('graph', 0)} graphs of NCCL",)
        return Reading("nccl-graph", Content.SETTINGS, trees[0][1], facts, built)
    path, root = systems[0]
    node = node_facts(root)
    if not node.gpus:
        built = ("a provider's tree of CPUs and PCI switches, without GPUs: NCCL adds them",)
        return Reading("nccl-topology", Content.SETTINGS, root, facts, built)
    cluster, built_node, assumed = cluster_of(node, context, path.name)
    ignored.extend(f"{other}: the topology of another node" for other, _ in systems[1:])
    facts |= {"gpus": node.gpus, "nics": node.nics, "links_per_gpu": node.links, "scale_up": node.kind, "gpu": node.gpu}
    return Reading("nccl-topology", Content.CLUSTER, cluster, facts, tuple(built_node), tuple(ignored), tuple(assumed))


def node_facts(root: XmlNode) -> NodeFacts:
    """What a topology says of its node."""
    elements = list(root.walk())
    boards = [node for node in elements if node.tag == "pci" and any(child.tag == "gpu" for child in node.children)]
    gpus = [child for board in boards for child in board.children if child.tag == "gpu"]
    if not gpus:
        boards = [
            node for node in elements if node.tag == "pci" and node.get("class").startswith(_GPU_CLASSES) and not node.children
        ]
    nets = [node for node in elements if node.tag == "net"]
    plain_nics = [n for n in elements if n.tag == "pci" and n.get("class").startswith(_NIC_CLASSES) and not n.children]
    links, kind = _links(boards, gpus)
    speeds = [net.number("speed") for net in nets if net.number("speed") > 0]
    vendor = next((cpu.get("vendor") for cpu in root.children if cpu.tag == "cpu"), "")
    arm = any(cpu.get("arch").startswith(("arm", "aarch")) for cpu in root.children)
    return NodeFacts(
        len(boards), next((gpu for board in boards if (gpu := _catalogue_id(board))), None), links, kind,
        len(nets) or len(plain_nics), max(speeds) * 1e6 / 8 if speeds else None,
        max((PCI_GENERATION.get(board.get("link_speed").split(" ")[0], 0) for board in boards), default=0) or None,
        {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(vendor, "arm" if arm else None),
    )  # fmt: skip


def _links(boards: list[XmlNode], gpus: list[XmlNode]) -> tuple[int, str | None]:
    """(links of a GPU, kind of scale-up); (0, None) where no GPU is listed, "pcie" where GPUs have no links."""
    if not gpus:
        return 0, None
    own = {board.get("busid").lower() for board in boards}
    lists = [[link for link in gpu.children if link.tag in ("nvlink", "xgmi")] for gpu in gpus]
    most = max(lists, key=lambda one: sum(link.number("count") for link in one))
    total = int(sum(link.number("count") for link in most))
    if not total:
        return 0, "pcie"
    if most[0].tag == "xgmi":
        return total, "xgmi"
    pairs = {
        (board.get("busid").lower(), link.get("target").lower()) for board, one in zip(boards, lists, strict=False) for link in one
    }
    if all(source == target for source, target in pairs):  # a virtual machine's file that hides who is joined
        return 0, None
    targets = {link.get("target").lower() for link in most}
    switch = any(link.get("tclass").startswith(_SWITCH) for link in most) or not targets & own or len(targets) == 1 < len(gpus) - 1
    return total, "nvswitch" if switch else "nvlink_mesh"


def _catalogue_id(board: XmlNode) -> str | None:
    vendor, device = (board.get(name).lower().removeprefix("0x") for name in ("vendor", "device"))
    return PCI_GPUS.get(f"{vendor}:{device}")


def _counts(root: XmlNode) -> dict[str, Any]:
    elements = list(root.walk())

    def values(tag: str, name: str) -> list[str]:
        return sorted({node.attributes[name] for node in elements if node.tag == tag and name in node.attributes})

    widths = {f"{node.get('link_speed')} x{node.get('link_width')}" for node in elements if "link_speed" in node.attributes}
    return {
        "root": root.tag, "version": root.get("version"), "tags": dict(Counter(node.tag for node in elements)),
        "nvlink_counts": values("nvlink", "count"), "xgmi_counts": values("xgmi", "count"), "net_speed": values("net", "speed"),
        "gpu_sm_or_gcn": values("gpu", "sm") or values("gpu", "gcn"), "link_speed_width": sorted(widths),
        "net_names": values("net", "name"),
    }  # fmt: skip


def _graphs(root: XmlNode) -> dict[str, Any]:
    """Channels and speeds that NCCL's search chose, by graph: pattern 4 is the ring, 1 to 3 trees, 5 and 6 NVLS."""
    graphs = [node for node in root.children if node.tag == "graph"]
    names = ("pattern", "nchannels", "speedintra", "speedinter", "typeintra", "typeinter")
    return {"graphs": [{"id": graph.get("id"), **{name: graph.get(name) for name in names}} for graph in graphs]}
