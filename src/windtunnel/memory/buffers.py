"""Buffers inside the framework's allocator that are neither state nor activation, and what its streams keep reserved."""

from __future__ import annotations

import numpy as np

from windtunnel.memory.habits import MemoryHabits
from windtunnel.memory.state import gradients_leave
from windtunnel.memory.tiers import largest_copy
from windtunnel.memory.walk import Buffers, keeps_output_gradient, output_gradient
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.blocks.quantise import gather_width
from windtunnel.workload.graph import Workload
from windtunnel.workload.identity import LAYERS, BlockKind, Role
from windtunnel.workload.ops import Kind, Phase
from windtunnel.workload.passes.fsdp import INT8, blocks_ahead, kept_root, persistent


def gather_pool(workload: Workload, stage: int, at_loss: bool) -> float:
    """Bytes that FSDP 2's stream of gathers keeps reserved beside the gathers in flight at the peak: no other stream gets blocks of
    its outputs, the largest of which is an outer unit's beside the first layer's (torch _fsdp_collectives.py, foreach_all_gather;
    _fsdp_param_group.py, wait_for_unshard: the last output is freed behind the next copy into one)."""
    job, runtime, blocks = workload.job, workload.job.runtime, workload.blocks
    used = {b for chunk in workload.stages[stage] for b, _ in chunk.blocks}
    sharded = job.plan.shards_parameters and job.shard_ranks > 1
    if not sharded or not runtime.sharding_copies or runtime.live_parameters is not None:
        return 0.0
    root = [blocks[b].elements for b in used if b in workload.root]
    largest = max((blocks[b].elements for b in used if b not in workload.root), default=0.0)
    apart = runtime.root_unit == "freed"
    outer = max(root, default=0.0) if apart else sum(root)
    ahead = 0 if apart and at_loss else blocks_ahead(workload, stage)
    return runtime.compute_width * max(0.0, outer + largest - ahead * largest)


def buffers_of(workload: Workload, stage: int, habit: MemoryHabits, parameters: float) -> Buffers:
    """Pipeline receive buffers, gathered parameters, unsharded gradients in flight and reduction buckets of `stage`."""
    job = workload.job
    plan = job.plan
    total = 2.0 * workload.boundary if plan.pp > 1 else 0.0  # the next activation and the next gradient arrive during a pass
    total += _placeholder_bytes(workload, stage)
    total += largest_copy(workload, stage)  # offload: a layer is copied out while the next one runs, or fetched ahead of its use
    if plan.shards_parameters and job.shard_ranks > 1:
        sharded = _sharded_bytes(workload, stage, habit, parameters + workload.held_weights(stage)[1])
        return Buffers(*(total + size for size in sharded))
    if (job.dp * plan.cp > 1 or gradients_leave(plan)) and habit.bucket:
        twice = job.runtime.contiguous_gradients and job.runtime.overlap_grad_reduce and plan.sharding == "zero2"
        bucket = min(_bucket_bytes(job, habit), parameters * DTYPE_BYTES[job.runtime.reduce_dtype])
        total += bucket * (2.0 if twice else 1.0)  # one fills while the other is reduced
    return Buffers(total, total, total)


def _bucket_bytes(job: Job, habit: MemoryHabits) -> float:
    return job.runtime.bucket if habit.stated_bucket else habit.bucket * DTYPE_BYTES[job.runtime.reduce_dtype]


def _placeholder_bytes(workload: Workload, stage: int) -> float:
    """One 16-bit tensor of each shape of weight whose gradient a product of Transformer Engine adds to the main gradient: autograd
    gets it, and it is kept for the next layer and pass (transformer_engine/pytorch/module/base.py, get_dummy_wgrad)."""
    runtime, table = workload.job.runtime, workload.ops
    if runtime.wgrad_placeholders not in ("linear", "all") or not runtime.fused_wgrad:
        return 0.0
    kinds = (Kind.GEMM, Kind.GROUPED_GEMM) if runtime.wgrad_placeholders == "all" else (Kind.GEMM,)
    used = {b for chunk in workload.stages[stage] for b, _ in chunk.blocks if workload.blocks[b].key.kind in LAYERS}
    rows = [row for b in sorted(used) for row in workload.blocks[b].backward if table.phase[row] == Phase.WGRAD]
    shapes = {(int(table.m[row]), int(table.n[row])) for row in rows if table.kind[row] in kinds and table.role[row] != Role.ROUTER}
    heads = any(workload.blocks[b].key.kind is BlockKind.HEAD for chunk in workload.stages[stage] for b, _ in chunk.blocks)
    kept = output_gradient(workload) if heads and keeps_output_gradient(runtime) else 0.0
    return runtime.compute_width * float(sum(m * n for m, n in shapes)) + kept


def _sharded_bytes(workload: Workload, stage: int, habit: MemoryHabits, parameters: float) -> Buffers:
    """Fully sharded: full-size copies of the blocks in flight, gradients of what is trained in them, and the reduce-scatter's
    input."""
    job, runtime = workload.job, workload.job.runtime
    compute, reduced = runtime.compute_width, DTYPE_BYTES[runtime.reduce_dtype]
    used = [b for chunk in workload.stages[stage] for b, _ in chunk.blocks]
    blocks = workload.blocks
    largest = max((blocks[b].elements for b in used if b not in workload.root), default=0.0)
    trained = max((blocks[b].parameters for b in used if b not in workload.root), default=0.0)
    if job.whole_in_step:
        # The reduce-scatter's input comes when the last activations have gone (torch stage.py, run_post_backward).
        outputs = _outputs(workload, stage, compute) if runtime.collects_outputs else 0.0
        # DTensor has no rule for the gradient of an embedding whose vocabulary is cut: each rank makes and keeps that of all rows
        # (torch _ops/_embedding_ops.py, embedding_dense_backward_strategy).
        table = float(job.vocab_elements) if any(blocks[b].key.kind is BlockKind.EMBEDDING for b in used) else 0.0
        whole = compute * (parameters + trained) + outputs + (job.plan.tp - 1) * reduced * table
        return Buffers(whole, whole, whole)
    last = workload.root[-1] if workload.root and workload.root[-1] in used else None
    head = 0.0 if last is None else blocks[last].parameters
    ahead, apart = blocks_ahead(workload, stage), runtime.root_unit == "freed"
    kept = sum(blocks[b].elements for b in (kept_root(workload) if apart else workload.root) if b in used)
    # The root unit is not resharded inside a step. Its backward hook comes with the loss's gradient and gathers the last layer; a
    # root without parameters of its own gathers nothing (torch _fsdp_param_group.py, pre_backward).
    gathered, early = kept + (1 + ahead) * largest, kept + (0.0 if apart else ahead * largest)
    if runtime.live_parameters is not None:  # DeepSpeed keeps parameters up to its limit of live ones
        gathered = early = max(gathered, runtime.live_parameters)
    if not runtime.reshard_after_forward:
        gathered = early = parameters
    second = parameters / job.plan.secondary_group if job.plan.secondary_group else 0.0
    small = sum(persistent(job, blocks[b]) * times for chunk in workload.stages[stage] for b, times in chunk.blocks)
    always = compute * (second + small) + (INT8 * largest if job.plan.quantised_gather else 0.0) + _staged_bytes(job, largest)
    narrow = workload.stage_quantised[stage]
    if runtime.reshard_after_forward:
        narrow = min(narrow, (1 + ahead) * max((blocks[b].quantised for b in used), default=0.0))
    always -= narrow * (compute - gather_width(runtime, compute, 1.0, 1.0))  # gathered in low precision
    at_loss = always + compute * min(early, parameters)
    in_layers = always + compute * min(gathered, parameters)
    if runtime.live_parameters is not None and runtime.contiguous_gradients:
        # Gradients lie in a bucket that is always there, and are copied once more when it is full (DeepSpeed stage3.py,
        # ipg_buckets; runtime/comm/coalesced_collectives.py, reduce_scatter_coalesced); autograd writes one at a time.
        bucket = _bucket_bytes(job, habit)
        tensor = max((size for b in used for size in blocks[b].tensors.trained), default=0.0)
        sent = min(bucket, reduced * parameters)
        return Buffers(in_layers + bucket + sent + compute * tensor, at_loss + bucket, at_loss + bucket + compute * head)
    if habit.checkpoints_outside and runtime.sharding_copies and job.plan.recompute == "full":
        in_layers += compute * largest
    # A head that is a unit of its own is reduced before the layers; else its gradient waits for the embedding's.
    waiting = reduced * max(trained, head) if apart else reduced * trained + compute * head
    return Buffers(in_layers + compute * trained + waiting, at_loss, at_loss + compute * head)


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
