"""Offload tiers: bytes that a GPU keeps in its node's DRAM, on its storage or expansion, or in the cluster's pool.

Copies between a GPU and other memory: seconds of one GPU's copy while all GPUs of its node, or of the cluster, copy as well.

All data-parallel ranks copy at the same time, so shared resources are divided evenly: a PCIe switch's up-link, a CPU's chip-to-chip
link, the host's memory, disks, the ports of a memory pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.memory.habits import MemoryHabits
from windtunnel.memory.state import gradients_leave, state_of
from windtunnel.memory.walk import Needs
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.spec.machine import Cluster, HostLink, MemoryPool, Node, Place
from windtunnel.spec.offload import NO_OFFLOAD
from windtunnel.spec.pcie import PCIE_X16
from windtunnel.workload.graph import Workload
from windtunnel.workload.passes.optimizer import updated_parameters
from windtunnel.workload.schedules import Pass

USABLE_HOST = 0.9
"""Share of the node's DRAM that training may pin; the system, the processes and the data loader use the rest. Assumed."""

PARTS = ("activations", "optimizer", "gradients", "parameters", "buffers")

NAMES: dict[str, str] = {"host": "host memory", "nvme": "storage", "expansion": "memory expansion", "pool": "memory pool"}


@dataclass(frozen=True)
class TierMemory:
    """Peak bytes of one GPU in one place, and its share of the capacity.

    `buffers`: pinned host memory of copies to disk.
    """

    place: Place
    activations: float = 0.0
    optimizer: float = 0.0
    gradients: float = 0.0
    parameters: float = 0.0
    buffers: float = 0.0
    capacity: float = 0.0

    @property
    def total(self) -> float:
        return sum(float(getattr(self, part)) for part in PARTS)

    @property
    def missing(self) -> float:
        """Bytes beyond the capacity; negative is what is free."""
        return self.total - self.capacity


def tiers_of(workload: Workload, stage: int, habit: MemoryHabits, needs: Sequence[Needs]) -> tuple[TierMemory, ...]:
    """Every place that the plan's offload uses, for one GPU of `stage`; empty without offload."""
    job = workload.job
    offload = job.plan.offload
    if offload == NO_OFFLOAD:
        return ()
    tiers: dict[Place, TierMemory] = {}

    def add(place: Place, **sizes: float) -> None:
        tier = tiers.get(place) or TierMemory(place, capacity=_capacity(job, place))
        tiers[place] = replace(tier, **{name: getattr(tier, name) + size for name, size in sizes.items()})

    if offload.activations:
        add(offload.activations_to, activations=_activations(workload, stage, needs))
        if offload.activations_to == "nvme":
            add("host", buffers=2.0 * largest_copy(workload, stage))
    parameters, experts = workload.stage_parameters[stage], workload.stage_experts[stage]
    plan = job.plan
    moments = workload.stage_states[stage]
    frozen = workload.held_weights(stage)[1]
    without_offload = state_of(_without_offload(job), parameters, experts, moments=moments, frozen=frozen)
    on_gpu = state_of(job, parameters, experts, moments=moments)
    offloaded = updated_parameters(job, parameters, experts) * (1.0 - offload.kept_state)
    if offload.optimizer != "none":
        optimizer_bytes = without_offload.optimizer - on_gpu.optimizer
        if plan.sharding in ("fsdp", "hsdp") and offload.parameters == "none" and job.runtime.master_weights:
            optimizer_bytes += 4.0 * offloaded  # the master copy; without offload the shards are the master copy
        gradient = DTYPE_BYTES[job.runtime.gradient_dtype] * offloaded
        add(offload.optimizer, optimizer=optimizer_bytes)
        if gradients_leave(plan) or offload.updated_away:
            add("host" if offload.optimizer == "nvme" else offload.optimizer, gradients=gradient)
    if offload.parameters != "none":
        add(offload.parameters, parameters=without_offload.weights)
    return tuple(tiers.values())


def largest_copy(workload: Workload, stage: int) -> float:
    """Bytes of the largest layer whose activations leave `stage`."""
    return max((workload.blocks[b].offloaded for chunk in workload.stages[stage] for b, _ in chunk.blocks), default=0.0)


def _activations(workload: Workload, stage: int, needs: Sequence[Needs]) -> float:
    """Most bytes of micro batches in flight."""
    chunk_offloaded = np.array([sum(needs[b].offloaded * times for b, times in chunk.blocks) for chunk in workload.stages[stage]])
    direction, chunk, _, _ = workload.passes(stage).T
    change = np.where(
        direction == Pass.FORWARD, chunk_offloaded[chunk], np.where(direction == Pass.BACKWARD, -chunk_offloaded[chunk], 0.0)
    )
    return float(np.cumsum(change).max(initial=0.0))


def _without_offload(job: Job) -> Job:
    return job.model_copy(update={"plan": job.plan.model_copy(update={"offload": NO_OFFLOAD})})


def _capacity(job: Job, place: Place) -> float:
    """A GPU's share of a place, bytes."""
    cluster, node = job.cluster, job.cluster.node
    if place == "pool":
        return cluster.memory_pool.capacity / cluster.gpus if cluster.memory_pool else 0.0
    of_node = {
        "host": USABLE_HOST * (node.host_memory or 0.0),
        "nvme": node.storage.capacity if node.storage else 0.0,
        "expansion": node.expansion.capacity if node.expansion else 0.0,
    }[place]
    return of_node / cluster.gpus_of_node


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
