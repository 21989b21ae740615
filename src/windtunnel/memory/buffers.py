"""Buffers inside the framework's allocator that are neither state nor activation."""

from __future__ import annotations

import numpy as np

from windtunnel.memory.habits import MemoryHabits
from windtunnel.memory.state import gradients_leave
from windtunnel.memory.tiers import largest_copy
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.blocks.quantise import gather_width
from windtunnel.workload.graph import Workload
from windtunnel.workload.identity import BlockKind
from windtunnel.workload.ops import Kind
from windtunnel.workload.passes.fsdp import INT8, blocks_ahead, persistent


def buffer_bytes(workload: Workload, stage: int, habit: MemoryHabits, parameters: float) -> float:
    """Pipeline receive buffers, gathered parameters, unsharded gradients in flight and reduction buckets of `stage`."""
    job = workload.job
    plan = job.plan
    total = 2.0 * workload.boundary if plan.pp > 1 else 0.0  # the next activation and the next gradient arrive during a pass
    total += largest_copy(workload, stage)  # offload: a layer is copied out while the next one runs, or fetched ahead of its use
    if plan.shards_parameters and job.shard_ranks > 1:
        return total + _sharded_bytes(workload, stage, habit, parameters + workload.held_weights(stage)[1])
    if (job.dp * plan.cp > 1 or gradients_leave(plan)) and habit.bucket:
        width = DTYPE_BYTES[job.runtime.reduce_dtype]
        twice = job.runtime.contiguous_gradients and job.runtime.overlap_grad_reduce and plan.sharding == "zero2"
        elements = job.runtime.bucket / width if habit.stated_bucket else habit.bucket
        total += min(elements, parameters) * width * (2.0 if twice else 1.0)  # one fills while the other is reduced
    return total


def _sharded_bytes(workload: Workload, stage: int, habit: MemoryHabits, parameters: float) -> float:
    """Fully sharded: full-size copies of the blocks in flight, their gradients, and the reduce-scatter's input."""
    job = workload.job
    compute = job.runtime.compute_width
    reduced = DTYPE_BYTES[job.runtime.reduce_dtype]
    used = [b for chunk in workload.stages[stage] for b, _ in chunk.blocks]
    size = [block.elements for block in workload.blocks]
    largest = max((size[b] for b in used if b not in workload.root), default=0.0)
    if job.plan.pp > 1 and habit.torch_pipeline:
        return compute * parameters + (compute + reduced) * largest + _outputs(workload, stage, compute)
    root = sum(size[b] for b in used if b in workload.root)
    head = size[workload.root[-1]] if workload.root and workload.root[-1] in used else 0.0
    # the root unit (embedding, head) is not resharded inside a step
    gathered = (1 + blocks_ahead(workload, stage)) * largest + root if job.runtime.reshard_after_forward else parameters
    if job.runtime.live_parameters is not None:  # DeepSpeed keeps parameters up to its limit of live ones
        gathered = max(gathered, job.runtime.live_parameters)
    second = parameters / job.plan.secondary_group if job.plan.secondary_group else 0.0
    small = sum(persistent(job, workload.blocks[b]) * times for chunk in workload.stages[stage] for b, times in chunk.blocks)
    quantised = INT8 * largest if job.plan.quantised_gather else 0.0
    if habit.checkpoints_outside and job.runtime.sharding_copies and job.plan.recompute == "full":
        second += largest
    quantised += _staged_bytes(job, largest)
    narrow = workload.stage_quantised[stage]
    if job.runtime.reshard_after_forward:
        narrow = min(narrow, (1 + blocks_ahead(workload, stage)) * max((workload.blocks[b].quantised for b in used), default=0.0))
    thinner = narrow * (compute - gather_width(job.runtime, compute, 1.0, 1.0))  # gathered in low precision
    return compute * (min(gathered, parameters) + largest + head + second + small) + reduced * largest + quantised - thinner


def _staged_bytes(job: Job, largest: float) -> float:
    """Shards of a block of `largest` elements on their way from the host and back: that in use, that fetched ahead, and the
    gradient reduced last (PyTorch's CPUOffloadPolicy and CPUOffload copy whole shards, in the dtype in which the host keeps
    them)."""
    runtime, plan = job.runtime, job.plan
    if plan.offload.parameters not in ("host", "nvme"):
        return 0.0
    kept = 4.0 if runtime.master_weights and plan.sharding in ("fsdp", "hsdp") else DTYPE_BYTES[runtime.weight_dtype]
    back = DTYPE_BYTES[runtime.reduce_dtype] if gradients_leave(plan) else 0.0
    return (2.0 * kept + back) * largest / job.shard_ranks


def _outputs(workload: Workload, stage: int, width: float) -> float:
    """Logits of all earlier micro batches, which PyTorch's pipeline runtime collects on the stage of the head."""
    head = next((index for index, block in enumerate(workload.blocks) if block.key.kind is BlockKind.HEAD), None)
    heads = [runs for chunk, runs in zip(workload.stages[stage], workload.runs(stage), strict=True) if (head, 1) in chunk.blocks]
    # kernels of a graph do not tell its outputs; a loss without materialised logits returns one number
    if head is None or not heads or workload.job.runtime.cross_entropy in ("chunked", "linear"):
        return 0.0
    table, rows = workload.ops, workload.blocks[head].forward
    loss = rows.start + int(np.flatnonzero(table.kind[rows.start : rows.stop] == Kind.CROSS_ENTROPY)[0])
    return (heads[0] - 1) * float(table.m[loss]) * float(table.n[loss]) * width
