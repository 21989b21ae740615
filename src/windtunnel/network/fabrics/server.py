"""The inside of a server: GPUs, NVSwitch or NVLink mesh, PCIe switches, NICs, CPUs.

One scale-up domain is one site of the graph; a domain that spans servers (NVL72) has one NVSwitch node and its trays' PCIe
trees. A domain's NVSwitches are one node with each GPU's full bandwidth, since NVLink stripes every transfer over all of them.

Shared by builders of GPU clusters: a catalogue node's numbers, and its GPUs as endpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.engine.graph import NodeKind
from windtunnel.network.fabrics.columns import Columns
from windtunnel.spec.pcie import nearest_pcie

if TYPE_CHECKING:
    from windtunnel.spec.machine import Node

from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph

CPU_RATE = {"intel": 22e9, "amd": 16e9, "arm": 52e9, "other": 16e9}
"""B/s between sockets: NCCL's figures for peer traffic over UPI (Sapphire Rapids) and Infinity Fabric (src/graph/topo.h); Arm
servers of this class connect their chips by NVLink-C2C, which is not the bottleneck: assumed to carry as much as PCIe gen 5."""
NVLINK_LATENCY = 25e-9  # s a link; default of SimAI's topology template (nv_latency)
PCIE_LATENCY = 100e-9  # s a link; port-to-port figure of PCIe switches of this class (Broadcom PEX, vendor)
CUBE_MESH = (
    (0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2),
    (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2),
)  # fmt: skip
"""NVLinks (a, b, how many) of the hybrid cube mesh of eight V100, six at each GPU (NVIDIA DGX-1V)."""


Cable = tuple[int, int, float, float]  # numbers inside the site, B/s, s


@dataclass(frozen=True)
class Inside:
    """Shape of a server in plain numbers. `domain` GPUs reach each other by NVLink; it may be less or more than `gpus`."""

    gpus: int
    domain: int
    kind: str  # of spec.ScaleUp
    bandwidth: float  # B/s per GPU each way
    links: int
    nics: int
    pcie_rate: float
    cpu_rate: float

    @classmethod
    def of(cls, node: Node, domain: int | None = None) -> Inside:
        """The numbers of a catalogue node; `domain`: GPUs that a job takes of a scale-up domain beyond the node."""
        scale = node.scale_up
        size = domain if domain is not None and scale.size > node.gpus else scale.size
        pcie = nearest_pcie(node.pcie_gen).peer
        if scale.kind == "pcie":
            pcie = min(pcie, scale.bandwidth)
        nics = node.nic.count if node.nic else 0
        return cls(node.gpus, size, scale.kind, scale.bandwidth, scale.links, nics, pcie, CPU_RATE[node.cpu_vendor])


@dataclass(frozen=True)
class Servers:
    """`gpus` [servers, g] and `nics` [servers, n] as nodes; the NICs that GPU i drives are `driven[nic_start[i]:nic_start[i + 1]]`.

    `rail` [servers * g]: the GPU's rail, -1 without NICs.
    """

    gpus: Int32s
    nics: Int32s
    nic_start: Int64s
    driven: Int32s
    rail: Int32s


def add_servers(columns: Columns, inside: Inside, count: int) -> Servers:
    """Adds `count` servers, numbered one after the other; the last domain may be smaller."""
    trays = max(1, inside.domain // inside.gpus)
    full_domains, rest = divmod(count, trays)
    gpus, nics = [], []
    site = 0
    for sites, size in ((full_domains, trays), (1 if rest else 0, rest)):
        if not sites:
            continue
        kinds, names, cables = site_of(inside, size)
        width = len(kinds)
        first = site * trays
        labels = [
            f"n{first + s * size + tray}.{name}" if tray >= 0 else f"d{site + s}.{name}"
            for s in range(sites)
            for tray, name in names
        ]
        all_sites = np.repeat(np.arange(site, site + sites, dtype=np.int32), width)
        ids = columns.nodes(np.tile(np.array(kinds, np.uint8), sites), labels, all_sites)
        base = ids[::width][:, None]
        a, b, rate, latency = (np.array(column) for column in zip(*cables, strict=True))
        shape = (sites, len(cables))
        columns.cables(
            base + a.astype(np.int32), base + b.astype(np.int32), np.broadcast_to(rate, shape), np.broadcast_to(latency, shape)
        )
        tray = (base + np.arange(size) * _width(inside)).reshape(-1, 1)
        gpus.append(tray + np.arange(inside.gpus))
        nics.append(tray + inside.gpus + np.arange(inside.nics))
        site += sites
    shares = _driven(inside)
    all_gpus = np.concatenate(gpus).astype(np.int32)
    all_nics = np.concatenate(nics).astype(np.int32)
    lengths = np.tile([len(share) for share in shares], count)
    flat = np.array([n for share in shares for n in share], np.intp)
    rails = min(inside.nics, inside.gpus)
    rail = [share[0] * rails // inside.nics if share else -1 for share in shares]
    return Servers(
        all_gpus,
        all_nics,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        all_nics[:, flat].ravel(),
        np.tile(np.array(rail, np.int32), count),
    )


def _switches(inside: Inside) -> int:
    """Number of PCIe switches: one per NIC and GPU if there are as many, and at least one per socket."""
    return min(inside.gpus, max(inside.nics, 2))


def _cpus(inside: Inside) -> int:
    return min(2, _switches(inside))


def _width(inside: Inside) -> int:
    """Nodes of one tray."""
    return inside.gpus + inside.nics + _switches(inside) + _cpus(inside)


def site_of(inside: Inside, trays: int) -> tuple[list[int], list[tuple[int, str]], list[Cable]]:
    """(kinds, (tray, name), cables) of one domain: tray by tray GPUs, NICs, PCIe switches, CPUs; then NVSwitches."""
    gpus, nics, switches, cpus, width = inside.gpus, inside.nics, _switches(inside), _cpus(inside), _width(inside)
    kinds: list[int] = []
    names: list[tuple[int, str]] = []
    cables: list[Cable] = []
    for tray in range(trays):
        nic, pcie, cpu = tray * width + gpus, tray * width + gpus + nics, tray * width + gpus + nics + switches
        for kind, number in ((NodeKind.GPU, gpus), (NodeKind.NIC, nics), (NodeKind.PCIE, switches), (NodeKind.CPU, cpus)):
            kinds += [kind] * number
            names += [(tray, f"{kind.name.lower()}{i}") for i in range(number)]
        cables += [(tray * width + g, pcie + g * switches // gpus, inside.pcie_rate, PCIE_LATENCY) for g in range(gpus)]
        cables += [(nic + i, pcie + i * switches // nics, inside.pcie_rate, PCIE_LATENCY) for i in range(nics)]
        cables += [(pcie + s, cpu + s * cpus // switches, inside.pcie_rate, PCIE_LATENCY) for s in range(switches)]
        if cpus == 2:
            cables.append((cpu, cpu + 1, inside.cpu_rate, PCIE_LATENCY))
    members = [tray * width + g for tray in range(trays) for g in range(gpus)]
    size = min(inside.domain, len(members))
    for island, start in enumerate(range(0, len(members), size) if size > 1 and inside.kind != "pcie" else ()):
        together = members[start : start + size]
        if inside.kind in ("nvswitch", "ici"):
            kinds.append(NodeKind.NVSWITCH)
            names.append((-1, f"nvswitch{island}"))
            cables += [(gpu, len(kinds) - 1, inside.bandwidth, NVLINK_LATENCY) for gpu in together]
        else:
            cables += _mesh(inside, together)
    return kinds, names, cables


def _mesh(inside: Inside, together: list[int]) -> list[Cable]:
    """Direct links of GPUs without a switch: the cube mesh for eight GPUs with six links, else an equal part for every pair."""
    if inside.kind == "nvlink_mesh" and len(together) == 8 and inside.links == 6:
        return [(together[a], together[b], inside.bandwidth / 6 * links, NVLINK_LATENCY) for a, b, links in CUBE_MESH]
    part = inside.bandwidth / (len(together) - 1) if len(together) > 1 else 0.0
    return [(a, b, part, NVLINK_LATENCY) for i, a in enumerate(together) for b in together[i + 1 :]]


def _driven(inside: Inside) -> list[list[int]]:
    """NICs that each GPU of a server drives: an even share of those on its PCIe switch, else the nearest one on its socket.

    As in NCCL (ncclTopoGetLocalNet): with n NICs beside m GPUs each GPU has ceil(n / m), rotated by its index.
    """
    gpus, nics, switches, cpus = inside.gpus, inside.nics, _switches(inside), _cpus(inside)
    if not nics:
        return [[] for _ in range(gpus)]
    driven = []
    for gpu in range(gpus):
        home = gpu * switches // gpus
        beside = [n for n in range(nics) if n * switches // nics == home]
        peers = [g for g in range(gpus) if g * switches // gpus == home]
        if beside:
            share = -(-len(beside) // len(peers))
            place = peers.index(gpu) * share
            driven.append([beside[(place + i) % len(beside)] for i in range(share)])
        else:
            socket = home * cpus // switches
            driven.append([min(range(nics), key=lambda n: ((n * switches // nics) * cpus // switches != socket, n))])
    return driven


def node_of(name: str, path: str) -> tuple[Inside, float]:
    """(inside, line rate of a NIC in B/s) of a catalogue node; SpecError if it has no NICs."""
    from windtunnel.spec.loading.load import load_node  # here: hosts are no servers

    node = load_node(name)
    if node.nic is None:
        raise SpecError(path, name, "a node with NICs")
    return Inside.of(node), node.nic.bandwidth


def ends(columns: Columns, servers: Servers) -> Graph:
    """The graph whose endpoints are the GPUs, server by server."""
    return columns.graph(servers.gpus.ravel(), servers.driven, servers.nic_start, servers.rail)
