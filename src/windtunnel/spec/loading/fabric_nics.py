"""The NICs that follow a fabric: a cluster of the catalogue whose fabric is replaced by name has those of machines on that fabric.

A fabric's entry may say them: `[nics.ID]` by GPU, `[nics.default]` for others, where a machine with slower NICs keeps its own.
Else they are those of a cluster of the catalogue with the same GPU on a fabric of the same kind.
"""

from __future__ import annotations

from typing import Any

from windtunnel.base.quantities import NicBandwidth
from windtunnel.spec.loading.catalog import entry, names

FOLLOWS = "NICs of machines on the fabric"
"""How the source of NICs begins that came with a fabric's name."""
RDMA = ("infiniband", "roce")
"""Kinds of fabrics that the same NICs speak."""


def fabric_named(own: object) -> str | None:
    """The fabric of the catalogue that a cluster's table names, alone or as the base of its own; None if it names none."""
    fabric = own.get("fabric") if isinstance(own, dict) else None
    name = fabric.get("base") if isinstance(fabric, dict) else fabric
    return name if isinstance(name, str) and name in names("fabrics") else None


def names_node(own: dict[str, Any]) -> bool:
    """Whether a cluster's table names its node too, which then has the NICs of its own entry."""
    node = own.get("node")
    return isinstance(node, str) or isinstance(node, dict) and "base" in node


def nics_on(name: str, old: object, node: object) -> dict[str, Any] | None:
    """The NICs of a resolved `node` that moves from a resolved fabric `old` to the fabric `name`; None: it keeps its own."""
    fabric = entry("fabrics", name, "cluster.fabric")
    if not isinstance(old, dict) or not isinstance(node, dict) or not isinstance(node.get("gpu"), dict) or old.get("id") == name:
        return None
    kinds = RDMA if fabric["kind"] in RDMA else (fabric["kind"],)
    gpu, gpus, has = node["gpu"].get("id"), node.get("gpus", 8), node.get("nic")
    if not isinstance(gpus, int):
        return None
    said = fabric.get("nics", {})
    if gpu in said:
        found, of = said[gpu], int(said[gpu].get("gpus", 8))
    elif old.get("kind") in kinds:
        return None
    elif "default" in said:
        found, of = said["default"], gpus
        if isinstance(has, dict) and _rate(has) <= _rate(found):
            return None
    else:
        node_name = _node_on(kinds, gpu)
        if node_name is None:
            return None
        other = entry("nodes", node_name, "cluster.node")
        found, of = other["nic"], int(other.get("gpus", 8))
    own = {key: found[key] for key in ("bandwidth", "latency") if key in found}
    count = max(1, found["count"] * gpus // of)
    return {"count": count, "latency": "0s", **own, "source": f"{FOLLOWS} {name}: {found.get('source', 'its entry')}"}


def _rate(nic: dict[str, Any]) -> float:
    from pydantic import TypeAdapter

    return float(nic["count"]) * float(TypeAdapter(NicBandwidth).validate_python(nic["bandwidth"]))


def _node_on(kinds: tuple[str, ...], gpu: object) -> str | None:
    """The node of the first cluster of the catalogue with this GPU, NICs, and a fabric of one of the kinds."""
    for name in names("clusters"):
        cluster = entry("clusters", name, "cluster")
        node, fabric = cluster.get("node"), cluster.get("fabric")
        if isinstance(node, str) and isinstance(fabric, str) and entry("fabrics", fabric, "cluster.fabric")["kind"] in kinds:
            table = entry("nodes", node, "cluster.node")
            if table.get("gpu") == gpu and "nic" in table:
                return node
    return None
