"""`lstopo x.xml` (hwloc 1 to 3): the tree of a machine → a node.

GPUs are co-processors that NVML, RSMI or CUDA name (with GPUModel), else PCI devices of classes 0300 and 0302; NICs are OpenFabrics
devices. NVLinks come from the distances NVLinkBandwidth, in MB/s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.xml_tree import XmlNode, read_xml
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.node import PCI_GPUS, NodeFacts, cluster_of, gpu_of_name
from windtunnel.formats.reading import Content, Context, Reading

WANTED = "an XML of hwloc's lstopo"
_PCI_GENERATION = ((0.9, 1), (1.8, 2), (3.6, 3), (7.2, 4), (14.0, 5), (28.0, 6))
"""Least GB/s of 4 lanes, by generation; hwloc prints GB/s of all lanes."""
_NIC_TYPE = ("3", "openfabrics", "32", "48")  # hwloc 1 and 2 number the kinds, hwloc 3 has bits
_TYPE = re.compile(r"(\w{4})(?: \[(\w{4}:\w{4})\])?")


def recognises(head: Head) -> bool:
    """The root of hwloc's XML."""
    return "<topology" in head.text[:2000] and ("hwloc" in head.text[:2000] or 'type="Machine"' in head.text)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A node. FileError for XML without a machine."""
    (path, *more) = files
    root = read_xml(path, WANTED)
    objects = [node for node in root.walk() if node.tag == "object"]
    if root.tag != "topology" or not objects:
        raise FileError(str(path), f"<{root.tag}> without objects", WANTED)
    devices = [node for node in objects if node.get("type") == "OSDev"]
    models = sorted({info.get("value") for node in devices for info in node.children if info.get("name") in ("GPUModel", "Model")})
    gpus = _gpus(objects, devices)
    nics = [node.get("name") for node in devices if node.get("osdev_type").lower() in _NIC_TYPE]
    distances = [node for node in root.walk() if node.tag.startswith("distances")]
    links, kind = _nvlinks(distances, len(gpus))
    boards = [node for node in objects if node.get("type") == "PCIDev" and _class(node).startswith(("0300", "0302"))]
    ids = [PCI_GPUS[match[2]] for node in boards if (match := _TYPE.match(node.get("pci_type"))) and match[2] in PCI_GPUS]
    gpu = next((known for model in models if (known := gpu_of_name(model))), ids[0] if ids else None)
    node = NodeFacts(len(gpus), gpu, links, kind, len(nics), None, _generation(boards), _vendor(objects), min(models, default=""))
    facts: dict[str, Any] = {
        "root": root.tag, "version": root.get("version"), "objects": dict(Counter(one.get("type") for one in objects)),
        "osdev": [one.get("name") for one in devices], "distances": sorted({one.tag for one in distances}),
        "gpus": len(gpus), "gpu_models": models, "nics": nics, "links_per_gpu": links,
    }  # fmt: skip
    ignored = tuple(f"{other}: another machine" for other in more)
    if not gpus:
        built = (f"a machine of {facts['objects'].get('Package', 0)} packages and {facts['objects'].get('Core', 0)} cores, no GPU",)
        return Reading("lstopo", Content.SETTINGS, facts, facts, built, ignored)
    cluster, built_node, assumed = cluster_of(node, context, path.name)
    return Reading("lstopo", Content.CLUSTER, cluster, facts, tuple(built_node), ignored, tuple(assumed))


def _gpus(objects: list[XmlNode], devices: list[XmlNode]) -> list[str]:
    for prefix in ("nvml", "rsmi", "cuda"):
        named = [node.get("name") for node in devices if re.fullmatch(rf"{prefix}\d+", node.get("name"))]
        if named:
            return named
    return [one.get("pci_busid") for one in objects if one.get("type") == "PCIDev" and _class(one) in ("0302", "1200")]


def _class(node: XmlNode) -> str:
    match = _TYPE.match(node.get("pci_type"))
    return match[1] if match else ""


def _generation(boards: list[XmlNode]) -> int | None:
    """PCIe generation of the GPUs, taking 16 lanes; None where hwloc saw no speed or an idle, slower link."""
    best = max((board.number("pci_link_speed") for board in boards), default=0.0)
    return next((generation for least, generation in reversed(_PCI_GENERATION) if best >= 4 * least and generation >= 3), None)


def _nvlinks(distances: list[XmlNode], gpus: int) -> tuple[int, str | None]:
    """(links of a GPU, kind): a row adds up to a GPU's bandwidth; a GPU whose partners are no GPUs hangs on switches."""
    for table in distances:
        if table.get("name") != "NVLinkBandwidth":
            continue
        try:
            values = [float(word) for node in table.children if node.tag == "u64values" for word in node.text.split()]
            size = int(table.number("nbobjs"))
        except ValueError:
            return 0, None
        if not 0 < size <= 4096 or len(values) < size * size:
            return 0, None
        row = [values[column] for column in range(size)]
        own = [value for value in row[1:] if 0 < value < 1e6]
        each = min(own, default=0.0)
        if not each:
            return 0, None
        unit = 50_000.0 if each % 50_000 == 0 and each >= 400_000 else 25_000.0 if each % 25_000 == 0 else each
        among = [value for value in row[1:gpus] if 0 < value < 1e6]
        return round(sum(own) / unit), "nvlink_mesh" if among else "nvswitch"
    return 0, None


def _vendor(objects: list[XmlNode]) -> str | None:
    values = [info.get("value") for one in objects for info in one.children if info.get("name") == "CPUVendor"]
    return {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(values[0] if values else "")
