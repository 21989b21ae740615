"""Links of a group: rates each way in B/s, and latency beyond one leaf in seconds."""

from __future__ import annotations

import math

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.network.fabrics.drawn import Levels, levels_of
from windtunnel.network.groups.shape import Group, Span
from windtunnel.spec.machine import Cluster, ScaleUp
from windtunnel.spec.pcie import nearest_pcie
from windtunnel.workload.ops import Comm

GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
"""NVIDIA's, as NCCL's tables have them."""

# Rings of single NVLinks that fit on the first n GPUs of an eight-GPU hybrid cube mesh (DGX-1V): two directions for each of the
# edge-disjoint Hamiltonian cycles; a test counts them. Five GPUs have none, and NCCL goes through a neighbour.
_CUBE_RINGS = {2: 1, 3: 2, 4: 4, 5: 2, 6: 2, 7: 4, 8: 6}
_ACROSS_SOCKETS = (
    0.6  # efficiency of a ring that leaves a CPU's PCIe tree: all-reduce on 8 against 4 A100 PCIe (SimuMax, 0.4176 / 0.6924)
)
_SPREAD = ("infiniband", "efa")  # fabrics whose packets take all equal paths if the catalogue states no routing


@dataclass(frozen=True)
class GroupLinks:
    """Rates of one group. `generation` and `fabric` are the keys of the fitted constants."""

    generation: str
    nvidia: bool
    medium: str
    """"nvlink" or "pci"."""
    intra: float
    """Rate of a GPU inside the domain."""
    chain: float
    """The same for a ring that continues to other domains."""
    pair: float
    """Rate to one peer inside the domain."""
    whole: float
    """`intra` of a group of all GPUs of the domain."""
    inter: float
    """Rate of the group's links out of one domain."""
    line: float
    """The same before the fabric's efficiency."""
    nics: float
    """NIC devices of the group."""
    hop: float
    """Seconds of network hops beyond those inside a leaf."""
    stated: float
    """Latency that the NIC reports to NCCL's tuner, which is a hint and not a measurement."""
    fabric: str
    nvls: bool
    sharp: bool
    amd: bool
    hosts: int = 1
    """Servers of a domain."""
    link: float | None = None
    """B/s each way of one of a GPU's scale-up links; None where their number is not stated."""
    better: tuple[tuple[tuple[float, float], ...], ...] = ()
    """(`line`, `nics`) of the group with as many NICs and with two, four, … times as many, up to one a GPU; of each number those of
    all rates between its own and `known_nic`, by factors of two."""
    beyond: bool = False
    """NICs are faster than `known_nic`."""
    relays: bool = False
    """Messages leave through the GPU on the receiver's rail (PXN), and those of a server's GPUs to a rank share a connection."""
    apart: bool = False
    """PXN could be on and is off, so every message has a connection of its own."""


_OTHERS = (("cdna4", "cdna4"), ("cdna2", "cdna2"), ("cdna", "cdna3"), ("gaudi", "gaudi"), ("tpu", "tpu"))


def generation_of(architecture: str, nvidia: bool) -> str:
    """The generation whose constants are used: NVIDIA's are those of NCCL's tuner, others are found by the prefix of the name."""
    name = architecture.lower()
    if not nvidia:
        return next((generation for start, generation in _OTHERS if name.startswith(start)), "other")
    known = {"pascal": "volta", "turing": "volta", "ada": "ampere", "rubin": "blackwell", "grace_hopper": "hopper"}
    if name in GENERATIONS:
        return name
    return known.get(name, next((g for g in GENERATIONS if name.startswith(g)), "hopper"))


def net_of(kind: str, generation: str) -> str:
    """Key of the fabric's fitted constants: EFA has one generation for p4 and one for p5 and later instances; RCCL has its own
    constants."""
    if kind == "efa" and generation in ("volta", "ampere"):
        return "efa1"
    return "rccl" if kind in ("infiniband", "roce", "ethernet") and generation.startswith("cdna") else kind


_FITTED_ON = {"efa1": 12.5e9, "ethernet": 25e9}
"""B/s of the NICs of p4 instances and of GPUDirect-TCPXO, on which the constants of these fabrics were fitted
(`catalog/calibration/collectives.toml`)."""


def known_nic(pcie_gen: int, net: str) -> float:
    """B/s of the fastest NIC that NCCL's tables and a fabric's constants are known for: that was sold for the GPU's lanes, and that
    the constants were fitted on. `net`: key of the constants."""
    return min(nearest_pcie(pcie_gen).nic, _FITTED_ON.get(net, math.inf))


def group_links(cluster: Cluster, group: Group) -> GroupLinks:
    """Links of `group` on `cluster`. SpecError if it spans nodes that have no NIC."""
    node, fabric = cluster.node, cluster.fabric
    scale, nvidia = node.scale_up, node.gpu.vendor == "nvidia"
    here, pcie = min(group.per_node, group.ranks), nearest_pcie(node.pcie_gen).peer
    fast = scale.kind != "pcie" and here <= scale.size
    if fast:
        intra, pair = _scale_up(scale, here)
        whole = _scale_up(scale, scale.size)[0]
    else:
        pair = min(scale.bandwidth, pcie)
        intra = whole = pair * (_ACROSS_SOCKETS if here > 4 else 1.0)
    # A ring over a full mesh takes n - 1 of its parts; without the closing edge in each domain all n fit.
    mesh = fast and scale.kind in ("xgmi", "ethernet", "nvlink_mesh") and group.nodes > 1 and here > 1 and not _cube(scale)
    chain = intra * here / (here - 1) if mesh else intra
    generation = generation_of(node.gpu.architecture, nvidia)
    line = inter = nics = hop = stated = 0.0
    better: tuple[tuple[tuple[float, float], ...], ...] = ()
    beyond = False
    if group.nodes > 1:
        if node.nic is None:
            raise SpecError("cluster.node.nic", None, f"a NIC, since the group spans {group.nodes} nodes")
        servers = cluster.domain / node.gpus
        devices, rate = node.ways_out
        # A rank drives the NIC beside it; with fewer NICs than GPUs the ranks of one domain share them.
        line, nics = _line(devices, rate, servers, group)
        known = known_nic(node.pcie_gen, net_of(fabric.kind, generation))
        rates, beyond = _by_twos(rate, known), rate > known
        better = tuple({tuple(_line(n, r, servers, group) for r in rates): None for n in _by_twos(devices, node.gpus)})
        inter = line * fabric.efficiency
        if group.span in ("pod", "core"):
            inter *= fabric.ecmp_efficiency
        hop = _beyond_leaf(levels_of(cluster), group.span)
        stated = node.nic.latency
    nvls = fast and scale.in_switch_reduction and nvidia
    return GroupLinks(
        generation,
        nvidia,
        "nvlink" if fast else "pci",
        intra,
        chain,
        pair,
        whole,
        inter,
        line,
        nics,
        hop,
        stated,
        net_of(fabric.kind, generation),
        nvls,
        fabric.in_network_reduction,
        node.cpu_vendor == "amd",
        cluster.domain // node.gpus,
        scale.bandwidth / scale.links if scale.links > 1 else None,
        better,
        beyond,
    )


def _beyond_leaf(levels: Levels, span: Span) -> float:
    """Seconds of links between switches, beyond the two links inside a leaf that the fitted latencies contain."""
    return {"pod": levels.near, "core": levels.far}.get(span, 0.0)


def _line(devices: float, rate: float, servers: float, group: Group) -> tuple[float, float]:
    """(B/s, NICs) of a group's way out of a domain with `devices` NICs of `rate` in each of its servers."""
    line = min(devices * rate * servers / group.sharing, group.per_node * rate)
    return line, max(1.0, line / rate)


def _by_twos(first: float, last: float) -> list[float]:
    """`first`, then twice or half as much as the one before, until `last`, which ends the list."""
    step = 2.0 if last > first else 0.5
    found = [first]
    while found[-1] != last:
        found.append(min(step * found[-1], last) if step > 1.0 else max(step * found[-1], last))
    return found


def _cube(scale: ScaleUp) -> bool:
    return scale.kind == "nvlink_mesh" and scale.size == 8 and scale.links == 6


def _scale_up(scale: ScaleUp, ranks: int) -> tuple[float, float]:
    """(rate of a ring, rate to one peer), per GPU each way."""
    kind, bandwidth, size, links = scale.kind, scale.bandwidth, scale.size, scale.links
    if kind == "nvswitch" or ranks < 2:
        return bandwidth, bandwidth
    if kind == "ici":  # a torus: rings on all axes at once, one link to a neighbour
        return bandwidth * _passes(scale, ranks), bandwidth / links
    if kind == "nvlink_mesh" and size == 8 and links == 6:
        return bandwidth / 6 * _CUBE_RINGS.get(ranks, 6), bandwidth / 6
    if size <= 2:
        return bandwidth, bandwidth
    # A full mesh: every peer owns an equal part of the links, and a ring over n of them reaches n - 1 parts.
    part = bandwidth / max(size - 1, links if kind == "xgmi" else 0)
    return part * (ranks - 1), part


def _passes(scale: ScaleUp, ranks: int) -> float:
    """Rate of a ring over `ranks` neighbours, in what one device has of its chip's links.

    A ring enters and leaves each chip once, so it has the links of all of the chip's devices; of those, the ones along the axes on
    which its chips lie: it fills one axis after the other. 1 where each device is a chip of its own.
    """
    if scale.chip == 1:
        return 1.0
    axes = max(1, scale.links // 2)
    along = (scale.size / scale.chip) ** (1 / axes)
    used = next((n for n in range(1, axes) if ranks / scale.chip <= along**n), axes)
    return scale.chip * used / axes


def above_leaf(cluster: Cluster, links: GroupLinks) -> GroupLinks:
    """Links of a group below one leaf whose messages go through a spine."""
    fabric = cluster.fabric
    return replace(links, inter=links.inter * fabric.ecmp_efficiency, hop=links.hop + levels_of(cluster).near)


def hash_gain(cluster: Cluster, group: Group, pairs: int) -> float:
    """Factor on the rate beyond a leaf of `pairs` queue pairs for each connection, where the fabric hashes them to its paths.

    What collisions of single flows cost (1 - `ecmp_efficiency`) falls as the spread of a mean does, with the square root of their
    number. Packets that take all paths do not gain. (NVIDIA/nccl issue 1015; Mellanox/nccl-rdma-sharp-plugins pull request 76.)
    """
    fabric = cluster.fabric
    hashes = fabric.routing in (None, "", "ecmp") and fabric.kind not in _SPREAD
    if not hashes or group.span not in ("pod", "core"):
        return 1.0
    return (1.0 - (1.0 - fabric.ecmp_efficiency) / math.sqrt(pairs)) / fabric.ecmp_efficiency


def uplink_share(cluster: Cluster, group: Group, comm: Comm, rails: int = 1, thin: bool = True) -> float:
    """Fraction of the NIC rate that the links out of a leaf and out of a pod leave a group (0..1].

    All groups of the axis send equally. A ring or tree in rank order leaves each leaf once, so 1 / per_leaf of a leaf's traffic
    goes up; for an all-to-all it is the share of peers below other leaves. Oversubscription limits it to the capacity.

    `rails`: leaves that a server's messages to one other server go to, if they change rails: of what would stay below a leaf, only
    one part of `rails` does. A group below one leaf then has the up-links of the whole leaf for itself. Not `thin`: as if no
    switch had more bandwidth below than above.
    """
    share, levels = 1.0, levels_of(cluster)
    tiers = (
        (group.per_leaf, levels.leaf_nodes, levels.oversubscription if thin else 1.0, ("pod", "core"), rails),
        (group.per_pod, levels.pod_nodes, levels.pod_oversubscription if thin else 1.0, ("core",), 1),
    )
    for below, most, over, spans, parts in tiers:
        if group.span in spans or parts > 1:
            whole = group.span in spans
            inside = below or float(max(1, min(most, group.nodes - 1)))
            stays = (inside - 1.0) / max(1, group.nodes - 1) if whole else 1.0
            crossing = 1.0 - stays / parts if comm == Comm.ALL_TO_ALL else 1.0 / inside
            used = over * crossing * (1.0 if whole else min(1.0, group.nodes / most))
            share = min(share, 1.0 / used) if used > 0.0 else share
    return share
