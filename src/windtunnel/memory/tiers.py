"""Offload tiers: bytes that a GPU keeps in its node's DRAM, on its storage or expansion, or in the cluster's pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.memory.habits import MemoryHabits
from windtunnel.memory.state import gradients_leave, state_of
from windtunnel.memory.walk import Needs
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.spec.machine.host import Place
from windtunnel.spec.offload import NO_OFFLOAD
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
