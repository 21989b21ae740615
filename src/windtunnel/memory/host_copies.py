"""Copies between a GPU and other memory: seconds of one GPU's copy while all GPUs of its node, or of the cluster, copy as well.

All data-parallel ranks copy at the same time, so shared resources are divided evenly: a PCIe switch's up-link, a CPU's
chip-to-chip link, the host's memory, disks, the ports of a memory pool.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.spec.machine.cluster import Cluster, Node
from windtunnel.spec.machine.host import HostLink, MemoryPool, Place
from windtunnel.spec.machine.pcie import PCIE_X16

ACHIEVED = {"pcie": (0.85, 0.85), "c2c": (0.83, 0.66)}
"""Share of the line rate that copies of pinned memory reach, from the host and to it. PCIe: 13 of 15.75 GB/s (V100), 26 of 31.5
(A100), 54 of 63 (H100), as bandwidthTest prints. Chip-to-chip: 375 and 297 of 450 GB/s on GH200 (Fusco et al. 2024). From
memory."""

HOST_MEMORY = {3: 256e9, 4: 409.6e9, 5: 614.4e9, 6: 819.2e9}
"""B/s of the memory of two sockets, by PCIe generation: 2 x 6 DDR4-2666, 2 x 8 DDR4-3200, DDR5-4800, DDR5-6400. Assumed if the node
states none."""

HOST_ACHIEVED = 0.8
"""Share of the host's memory bandwidth that streaming reaches (STREAM on server CPUs: 75 to 85 %); assumed."""

COPY_LATENCY = 10e-6
"""Seconds from the start of a copy to its first byte; assumed, from small copies with cudaMemcpyAsync."""


@dataclass(frozen=True)
class Leg:
    """One hop of a copy: B/s of one GPU's share, and seconds before its first byte."""

    rate: float
    latency: float

    def seconds(self, size: float) -> float:
        """Seconds for `size` bytes; 0 for none."""
        return self.latency + size / self.rate if size > 0.0 else 0.0


def host_link(node: Node) -> HostLink:
    """The node's link between GPUs and host; if it states none, 16 lanes of its PCIe generation per GPU."""
    if node.host_link is not None:
        return node.host_link
    lanes = PCIE_X16.get(node.pcie_gen)
    if lanes is None:
        raise SpecError(
            "cluster.node.pcie_gen", node.pcie_gen, ", ".join(map(str, PCIE_X16)), "Or write cluster.node.host_link.bandwidth."
        )
    return HostLink(kind="pcie", bandwidth=f"{lanes.line!r}B/s", source="16 lanes of the PCIe generation")  # type: ignore[arg-type]


def host_memory_rate(node: Node) -> float:
    """B/s of the node's memory, shared by all its GPUs and CPUs."""
    peak_rate = node.host_memory_bandwidth or HOST_MEMORY.get(node.pcie_gen, HOST_MEMORY[4])
    return HOST_ACHIEVED * peak_rate


def legs(cluster: Cluster, place: Place, out: bool) -> tuple[Leg, ...]:
    """Hops between a GPU and `place`, in the order of the copy; `out`: away from the GPU.

    NVMe is reached through pinned host memory. Raises SpecError for a place that the cluster has not.
    """
    node, gpus = cluster.node, cluster.gpus_of_node
    if place == "pool":
        return (pool_leg(cluster),)
    link = host_link(node)
    way = ACHIEVED[link.kind][1 if out else 0] * link.bandwidth / min(link.gpus, gpus)
    if place == "expansion":
        if node.expansion is None:
            raise SpecError("cluster.node.expansion", None, "a memory expansion")
        return (Leg(min(way, node.expansion.bandwidth / gpus), COPY_LATENCY + node.expansion.latency),)
    host = Leg(min(way, host_memory_rate(node) / gpus), COPY_LATENCY)
    if place == "host":
        return (host,)
    if node.storage is None:
        raise SpecError("cluster.node.storage", None, "storage")
    disk = Leg((node.storage.write if out else node.storage.read) / gpus, node.storage.latency)
    return (host, disk) if out else (disk, host)


def _pool(cluster: Cluster) -> MemoryPool:
    if cluster.memory_pool is None:
        raise SpecError("cluster.memory_pool", None, "a memory pool")
    return cluster.memory_pool


def pool_leg(cluster: Cluster) -> Leg:
    """A leg on which every GPU moves its own bytes: the slowest of the in-node fabric, the node's up-link and the pool's ports,
    each divided over the GPUs behind it."""
    pool, gpus = _pool(cluster), cluster.gpus_of_node
    out = (pool.node_bandwidth or gpus * pool.gpu_bandwidth) / gpus
    return Leg(min(pool.gpu_bandwidth, out, pool.ports * pool.bandwidth / cluster.gpus), pool.latency)


def pool_collective(cluster: Cluster, size: float, ranks: int) -> float:
    """Seconds in which `ranks` GPUs all read the same `size` bytes, or store the sum of `size` bytes each, if the switches gather
    or add. The pool's memory moves them once per group; each node's up-link and each GPU's port carry all of them."""
    pool, gpus = _pool(cluster), cluster.gpus_of_node
    groups = max(1, cluster.gpus // ranks)
    way_out = (pool.node_bandwidth or gpus * pool.gpu_bandwidth) / (gpus // min(ranks, gpus))  # of one group in the node
    rate = min(pool.gpu_bandwidth, way_out, pool.ports * pool.bandwidth / groups)
    return Leg(rate, pool.latency).seconds(size)
