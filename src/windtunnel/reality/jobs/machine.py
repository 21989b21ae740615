"""The cluster of a row: a machine of the catalogue with the row's counts and rates.

A machine that the row names (Selene, Eos, Jean Zay, …) is taken before a generic one with the same GPU and kind of fabric.

The catalogue GPU that a table names: tables write "b200-sxm-192gb" or "H100-SXM-96GB-HBM2e (Meta)" for one part.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from pydantic import ValidationError

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import UnknownName
from windtunnel.compute.clock import slowest_known
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import GPU, Cluster, Fabric, Nic, Node, load_cluster, load_fabric, load_gpu, load_node, match_gpu, names

KINDS = {
    "ib": "infiniband",
    "infiniband": "infiniband",
    "roce": "roce",
    "efa": "efa",
    "opa": "opa",
    "ethernet": "ethernet",
    "tcp": "ethernet",
    "slingshot": "ethernet",
    "none": "none",
    "nvlink": "none",
    "xgmi": "none",
    "pcie": "none",
    "ici": "ici",
    "ici+dcn": "ethernet",
    "tcpx": "ethernet",
    "tcpxo": "ethernet",
    "neuronlink": "none",
}
"""Spellings of the `fabric` column."""

GENERIC = ("infiniband", "roce", "efa", "ethernet")
"""Kinds of fabric in the order of preference if none is stated."""

_SLICES = re.compile(r"(?<![\w.])(\d+) ?(?:x|slice\(s\)|slices?\b)")
"""Slices of a pod in the text of a network: "2x v5e-256", "1 slice(s)"."""

_LIMITED = re.compile(r"power[- ](?:limited|capped)(?: (?:to|at) (\d+) ?W\b)?", re.IGNORECASE)
"""A power state in the words of a note."""

_NOT_A_NAME = re.compile(r"^(aws|ib|roce|efa|opa|pcie|\d+gb|[abhlmv]\d+\w*|gb\d+|nvl\d+|p\d\w*)$")


@dataclass(frozen=True)
class Place:
    """The columns of a table about a machine. NIC rate in Gbit/s per NIC each way; `text`: any text that may name the machine."""

    gpu: str
    gpus_per_node: int
    scaleup_gpus: int | None
    nics_per_node: int | None
    nic_gbit_s: float | None
    fabric: str | None
    gpus: int
    text: str = ""


def cluster_of(row: TrainingRow, assumed: list[str]) -> Cluster | Skipped:
    """The machine of a training row; a run on part of a node keeps the full node."""
    if not (row.gpu and row.gpus):
        return Skipped("gpu or gpus not published")
    gpu, row = row.gpu, _with_known_node(row, assumed)
    text = " ".join(filter(None, (row.family, row.source, row.network_text)))
    place = Place(
        gpu, row.gpus_per_node or 8, _share(row, assumed), row.nics_per_node, row.nic_gbit_s, row.fabric, row.gpus or 1, text
    )
    cluster = machine(_add_network(place, assumed))
    if isinstance(cluster, Cluster):
        cluster = _with_power(cluster, row, assumed)
    if isinstance(cluster, Cluster) and gpu.casefold() not in (cluster.gpu.id, *map(str.casefold, cluster.gpu.names)):
        assumed.append(f"GPU {gpu!r} is the catalogue's {cluster.gpu.id}")
    return cluster


def _with_power(cluster: Cluster, row: TrainingRow, assumed: list[str]) -> Cluster:
    """The cluster in the power state that the row states by its columns, or its notes in words ("power limited to 750 W")."""
    gpu, said = cluster.gpu, _LIMITED.search(row.notes or "")
    limit = row.power_limit_w or (float(said.group(1)) if said and said.group(1) else None)
    known: dict[str, float] = {}
    if row.sustained_tflops:
        known["sustained_rate"] = 1e12 * row.sustained_tflops
        assumed.append(f"large products sustain {row.sustained_tflops:g} TFLOP/s (the row)")
    if limit and gpu.power_w and limit < gpu.power_w:
        known["power_cap_w"] = limit
        assumed.append(f"GPUs limited to {limit:g} W of {gpu.power_w:g} W (the row)")
    elif said and not known and (slowest := slowest_known(gpu)) is not None:
        known["sustained_rate"] = slowest
        assumed.append(f"power limited: large products sustain {slowest / 1e12:,.0f} TFLOP/s, as on the slowest machine published")
    if not known:
        return cluster
    node = cluster.node.model_copy(update={"gpu": gpu.model_copy(update=known)})
    return cluster.model_copy(update={"node": node})


def _with_known_node(row: TrainingRow, assumed: list[str]) -> TrainingRow:
    """The row with the node and the scale-up domain of the catalogue where it states no node. A torus that spans several slices
    has one domain for each."""
    if row.gpus_per_node is not None:
        return row
    node = _nearest_node(row.gpu or "", 8)
    count, domain = (node.gpus, node.scale_up.size) if node else (8, 8)
    assumed.append(f"{count} GPUs in a node (not published)")
    if row.scaleup_gpus is not None or domain <= count:
        return replace(row, gpus_per_node=count)
    slices = _SLICES.search(row.network_text or "") if node and node.scale_up.kind == "ici" else None
    gpus = row.gpus or 1
    if slices and gpus % int(slices.group(1)) == 0:
        domain = gpus // int(slices.group(1))
    assumed.append(f"{domain} GPUs in a scale-up domain (not published)")
    return replace(row, gpus_per_node=count, scaleup_gpus=domain)


def _nearest_node(gpu: str, gpus: int) -> Node | None:
    """The catalogue's node with that GPU, as `_node` takes it; None for an unknown GPU."""
    try:
        return _node(Place(gpu, gpus, None, None, None, None, gpus), gpu_named(gpu).id)
    except UnknownName:
        return None


def _add_network(place: Place, assumed: list[str]) -> Place:
    """`place` with NICs and fabric of a catalogue machine, if a job of several nodes does not state them."""
    domain = max(place.gpus_per_node, place.scaleup_gpus or 0)
    if place.gpus <= domain or (place.nics_per_node and place.nic_gbit_s):
        return place
    try:
        gpu = gpu_named(place.gpu).id
    except UnknownName:
        return place  # `machine` refuses it
    kinds = [KINDS.get(place.fabric.lower())] if place.fabric else GENERIC
    for kind in kinds:
        similar = _known_cluster(place, gpu, kind) if kind else None
        nic = similar.node.nic if similar else None
        if similar is None or nic is None:
            continue
        count, rate = place.nics_per_node or nic.count, place.nic_gbit_s or 8e-9 * nic.bandwidth
        assumed.append(f"{count} NICs of {rate:g} Gb/s and {similar.fabric.kind} (not stated: as {similar.id})")
        return replace(place, nics_per_node=count, nic_gbit_s=rate, fabric=place.fabric or similar.fabric.kind)
    return _add_nics(place, gpu, assumed) if None not in kinds else place


def _add_nics(place: Place, gpu: str, assumed: list[str]) -> Place:
    """`place` with the NICs of the catalogue's node, where no cluster with that GPU has the stated fabric."""
    node = _node(place, gpu)
    if node is None or node.nic is None or KINDS.get((place.fabric or "").lower()) == "none":
        return place
    count, rate = place.nics_per_node or node.nic.count, place.nic_gbit_s or 8e-9 * node.nic.bandwidth
    assumed.append(f"{count} NICs of {rate:g} Gb/s (not stated: as node {node.id})")
    return replace(place, nics_per_node=count, nic_gbit_s=rate, fabric=place.fabric or "ethernet")


def _share(row: TrainingRow, assumed: list[str]) -> int | None:
    """GPUs of a scale-up domain that the run uses. With experts over several domains it is the same number in each: schedulers
    assign segments of racks so that no expert group spans two."""
    domain, gpus = row.scaleup_gpus, row.gpus or 1
    if domain is None or (row.ep or 1) == 1 or gpus <= domain:
        return domain
    domains = -(-gpus // domain)
    if gpus % domain == 0 or gpus % domains or gpus // domains % (row.gpus_per_node or 8):
        return domain
    assumed.append(f"{gpus // domains} of the {domain} GPUs of each scale-up domain (not published)")
    return gpus // domains


def machine(place: Place) -> Cluster | Skipped:
    """A cluster of `place.gpus` GPUs; `Skipped` for a GPU or fabric that the catalogue lacks."""
    try:
        gpu = gpu_named(place.gpu)
    except UnknownName as error:
        return Skipped(f"GPU {place.gpu!r} is not in the catalogue; known: {error.allowed}. {error.hint}".rstrip(". ") + ".")
    kind = KINDS.get((place.fabric or "none").lower())
    if kind is None:
        return Skipped(f"fabric {place.fabric!r} is not modelled")
    similar = _known_cluster(place, gpu.id, kind)
    node = similar.node if similar else _node(place, gpu.id)
    if node is None:
        return Skipped(f"no node with GPU {place.gpu!r} in the catalogue")
    networked = bool(place.nics_per_node and place.nic_gbit_s)
    torus = kind == "ici" and similar is not None
    fabric = similar.fabric if similar and (networked or torus) else _fabric(kind if networked else "none")
    if fabric is None:
        return Skipped(f"no {kind} fabric in the catalogue")
    nic = None
    if networked:
        table: dict[str, object] = {"count": place.nics_per_node, "bandwidth": f"{place.nic_gbit_s}Gb/s", "source": "the row"}
        if node.nic:
            table["latency"] = node.nic.latency
        try:
            nic = Nic.model_validate(table)
        except ValidationError as error:
            return Skipped(f"NICs: {error.errors()[0]['msg']}")
    scale_up = node.scale_up if torus else node.scale_up.model_copy(update={"size": place.scaleup_gpus or place.gpus_per_node})
    node = node.model_copy(update={"gpu": gpu, "gpus": place.gpus_per_node, "scale_up": scale_up, "nic": nic})
    if similar:
        return similar.model_copy(update={"node": node, "fabric": fabric, "gpus": place.gpus})
    name = f"{place.gpu}-{place.fabric or 'none'}"
    try:
        return Cluster.model_validate({"id": name, "node": node, "fabric": fabric, "gpus": place.gpus, "source": "the row"})
    except ValidationError as error:
        return Skipped(f"cluster: {error.errors()[0]['msg']}")


def _known_cluster(place: Place, gpu: str, kind: str) -> Cluster | None:
    """The catalogue's cluster with this GPU and kind of fabric: one that the text names, else a generic one, else the first."""
    words = re.findall(r"[a-z]+", place.text.lower())
    stated_words = {*words, *(a + b for a, b in zip(words, words[1:], strict=False))}
    same = [
        cluster
        for cluster in _clusters()
        if cluster.node.gpu.id == gpu and cluster.fabric.kind == kind and cluster.node.gpus == place.gpus_per_node
    ]

    def order(cluster: Cluster) -> tuple[int, float, str]:
        name = "".join(part for part in cluster.id.split("-") if not _NOT_A_NAME.match(part))
        return (0 if name and name in stated_words else 1 if not name else 2), _nic_gap(cluster.node, place), cluster.id

    return min(same, key=order, default=None)


def _node(place: Place, gpu: str) -> Node | None:
    """The catalogue's node with this GPU, the one nearest in GPUs and in NICs (then by name)."""
    same = [node for node in _nodes() if node.gpu.id == gpu]
    return min(same, key=lambda node: (abs(node.gpus - place.gpus_per_node), _nic_gap(node, place), node.id), default=None)


def _nic_gap(node: Node, place: Place) -> float:
    have = node.nic.count * node.nic.bandwidth if node.nic else 0.0
    want = (place.nics_per_node or 0) * (place.nic_gbit_s or 0.0) * 1e9 / 8.0
    return abs(have - want)


def _fabric(kind: str) -> Fabric | None:
    """The catalogue's fabric of that kind with the shortest name: the generic one."""
    same = [fabric for fabric in _fabrics() if fabric.kind == kind]
    return min(same, key=lambda fabric: (len(fabric.id), fabric.id), default=None)


@lru_cache(maxsize=1)
def _clusters() -> tuple[Cluster, ...]:
    return tuple(load_cluster(name) for name in names("clusters"))


@lru_cache(maxsize=1)
def _nodes() -> tuple[Node, ...]:
    return tuple(load_node(name) for name in names("nodes"))


@lru_cache(maxsize=1)
def _fabrics() -> tuple[Fabric, ...]:
    return tuple(load_fabric(name) for name in names("fabrics"))


_WORD = re.compile(r"[a-z]*\d*[a-z]*\d*[a-z]*")
_FAMILIES = ("tpu", "rtx")
"""First words of an id that name no part by themselves."""


@cache
def gpu_named(text: str) -> GPU:
    """The GPU whose id or driver name `text` is; else the one whose part number (H200, MI300X, v5p) is a whole word of `text`.

    Of several with that part number, the one with most words of its id in `text`. Raises UnknownName if none or several remain:
    H20 is never H200, and "H100" without more may be any of four.
    """
    try:
        return match_gpu(text)
    except UnknownName:
        words = _words(text)
        parts = {name: {_part(name), f"{name.split('-')[0]}{_part(name)}"} for name in names("gpus")}
        shared = {name: len(words & _words(name)) for name, its in parts.items() if its & words}
        best = [name for name, count in shared.items() if count == max(shared.values())]
        if len(best) != 1:
            raise UnknownName("gpu", text, best or names("gpus")) from None
        return load_gpu(best[0])


def _part(name: str) -> str:
    """The word of a catalogue id that is the part's number."""
    words = name.split("-")
    return words[1] if words[0] in _FAMILIES else words[0]


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(text.lower()) if word)
