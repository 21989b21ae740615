"""Buffers inside the framework's allocator that are neither state nor activation."""

from __future__ import annotations

import numpy as np

from windtunnel.memory.habits import Habits
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.workload.build import EMBEDDING, HEAD
from windtunnel.workload.graph import Workload
from windtunnel.workload.ops import Kind

IN_FLIGHT = 2
"""Blocks whose parameters are gathered at once: the one that runs and the one fetched ahead."""


def buffer_bytes(workload: Workload, stage: int, habit: Habits, parameters: float) -> float:
    """Pipeline receive buffers, gathered parameters, unsharded gradients in flight and reduction buckets of `stage`."""
    job = workload.job
    plan = job.plan
    total = 2.0 * workload.boundary if plan.pp > 1 else 0.0  # the next activation and the next gradient arrive during a pass
    if plan.shards_parameters:
        return total + _sharded(workload, stage, habit, parameters + workload.stage_frozen[stage])
    if job.dp * plan.cp > 1 and habit.bucket:
        width = DTYPE_BYTES[job.runtime.reduce_dtype]
        total += min(habit.bucket, parameters) * width
    return total


def _sharded(workload: Workload, stage: int, habit: Habits, parameters: float) -> float:
    """Fully sharded: full-size copies of the blocks in flight, their gradients, and the reduce-scatter's input."""
    job = workload.job
    compute = job.runtime.compute_width
    reduced = DTYPE_BYTES[job.runtime.reduce_dtype]
    used = [b for chunk in workload.stages[stage] for b, _ in chunk.blocks]
    size = [block.elements for block in workload.blocks]
    largest = max((size[b] for b in used if b not in (EMBEDDING, HEAD)), default=0.0)
    if job.plan.pp > 1 and habit.torch_pipeline:
        return compute * parameters + (compute + reduced) * largest + _outputs(workload, stage, compute)
    root = sum(size[b] for b in used if b in (EMBEDDING, HEAD))
    head = size[HEAD] if HEAD in used else 0.0
    # the root unit (embedding, head) is not resharded inside a step
    gathered = IN_FLIGHT * largest + root if job.runtime.reshard_after_forward else parameters
    return compute * (min(gathered, parameters) + largest + head) + reduced * largest


def _outputs(workload: Workload, stage: int, width: float) -> float:
    """Logits of all earlier micro batches, which PyTorch's pipeline runtime collects where the head is."""
    heads = [runs for chunk, runs in zip(workload.stages[stage], workload.runs(stage), strict=True) if (HEAD, 1) in chunk.blocks]
    if not heads or workload.job.runtime.cross_entropy in ("chunked", "linear"):  # there the stage's output is the loss
        return 0.0
    table, rows = workload.ops, workload.blocks[HEAD].forward
    loss = rows.start + int(np.flatnonzero(table.kind[rows.start:rows.stop] == Kind.CROSS_ENTROPY)[0])
    return (heads[0] - 1) * float(table.m[loss]) * float(table.n[loss]) * width
