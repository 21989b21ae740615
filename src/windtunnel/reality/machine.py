"""The cluster that a row ran on: the catalogue's GPU in a node and on a fabric with the row's counts and rates."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.base.errors import UnknownName
from windtunnel.reality.architecture import Skipped
from windtunnel.reality.rows import TrainingRow
from windtunnel.spec import Cluster, Fabric, Nic, Node, load_fabric, load_gpu, load_node
from windtunnel.spec.catalog import names

KINDS = {"ib": "infiniband", "infiniband": "infiniband", "roce": "roce", "efa": "efa", "opa": "opa", "ethernet": "ethernet", "none": "none"}
"""Spellings of the `fabric` column."""


@dataclass(frozen=True)
class Place:
    """What a table says of a machine. NIC rate in Gbit/s per NIC each way."""

    gpu: str
    gpus_per_node: int
    scaleup_gpus: int | None
    nics_per_node: int | None
    nic_gbit_s: float | None
    fabric: str | None
    gpus: int


def cluster_of(row: TrainingRow, assumed: list[str]) -> Cluster | Skipped:
    """The machine of a training row; a run on part of a node keeps the node whole."""
    if not (row.gpu and row.gpus):
        return Skipped("gpu or gpus not published")
    if row.gpus_per_node is None:
        assumed.append("8 GPUs in a node (not published)")
    return machine(Place(row.gpu, row.gpus_per_node or 8, row.scaleup_gpus, row.nics_per_node, row.nic_gbit_s, row.fabric, row.gpus))


def machine(place: Place) -> Cluster | Skipped:
    """A cluster of `place.gpus` GPUs; `Skipped` for a GPU or fabric that the catalogue lacks."""
    try:
        gpu = load_gpu(place.gpu)
    except UnknownName:
        return Skipped(f"GPU {place.gpu!r} is not in the catalogue")
    template = _template(place, gpu.id)
    if template is None:
        return Skipped(f"no node with GPU {place.gpu!r} in the catalogue")
    kind = KINDS.get((place.fabric or "none").lower())
    if kind is None:
        return Skipped(f"fabric {place.fabric!r} is not modelled")
    nic = None
    if place.nics_per_node and place.nic_gbit_s:
        latency = template.nic.latency if template.nic else 0.0
        nic = Nic(count=place.nics_per_node, bandwidth=f"{place.nic_gbit_s}Gb/s", latency=latency, source="the row")  # type: ignore[arg-type]
    scale_up = template.scale_up.model_copy(update={"size": place.scaleup_gpus or place.gpus_per_node})
    node = template.model_copy(update={"id": f"{template.id}-as-published", "gpu": gpu, "gpus": place.gpus_per_node,
                                       "scale_up": scale_up, "nic": nic})
    fabric = _fabric("none" if nic is None else kind, place.nic_gbit_s)
    if fabric is None:
        return Skipped(f"no {kind} fabric in the catalogue")
    return Cluster(id=f"{place.gpus}x{place.gpu}", node=node, fabric=fabric, gpus=place.gpus, source="the row")


def _template(place: Place, gpu: str) -> Node | None:
    """The catalogue's node with this GPU, the one nearest in GPUs per node (then by name)."""
    nodes = [load_node(name) for name in names("nodes")]
    same = [node for node in nodes if node.gpu.id == gpu]
    return min(same, key=lambda node: (abs(node.gpus - place.gpus_per_node), _nic_gap(node, place), node.id), default=None)


def _nic_gap(node: Node, place: Place) -> float:
    have = node.nic.count * node.nic.bandwidth if node.nic else 0.0
    want = (place.nics_per_node or 0) * (place.nic_gbit_s or 0.0) * 1e9 / 8.0
    return abs(have - want)


def _fabric(kind: str, gbit_s: float | None) -> Fabric | None:
    """The catalogue's first fabric of that kind, fat trees before others."""
    if kind == "none":
        found = [fabric for fabric in map(load_fabric, names("fabrics")) if fabric.kind == "none"]
        return found[0] if found else Fabric(id="none", kind="none", topology="none", source="no network between nodes")
    found = [fabric for fabric in map(load_fabric, names("fabrics")) if fabric.kind == kind]
    return min(found, key=lambda fabric: (_line_rate_gap(fabric, gbit_s), fabric.id), default=None)


def _line_rate_gap(fabric: Fabric, gbit_s: float | None) -> float:
    """How far the rate in a fabric's name (HDR is 200, NDR 400 Gbit/s) is from the row's; fabrics carry no rate of their own."""
    rates = {"edr": 100.0, "hdr": 200.0, "ndr": 400.0, "xdr": 800.0, "100g": 100.0, "200g": 200.0, "400g": 400.0, "800g": 800.0}
    said = [rate for mark, rate in rates.items() if mark in fabric.id.lower()]
    return abs(said[0] - gbit_s) if said and gbit_s else 0.0
