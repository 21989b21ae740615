"""Buffers inside the framework's allocator that are neither state nor activation, and what its streams keep reserved. Tensors that
a pass of a block allocates, in order: saved ones, and temporary ones that only the next operator reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.memory.habits import MemoryHabits, habits
from windtunnel.memory.state import gradients_leave
from windtunnel.memory.tiers import largest_copy
from windtunnel.memory.walk import Buffers, Needs, copy_per_logit, keeps_output_gradient, output_gradient, saved_per_logit
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.blocks.quantise import gather_width
from windtunnel.workload.graph import Block, Workload
from windtunnel.workload.identity import LAYERS, BlockKind, Role
from windtunnel.workload.ops import Axis, Comm, Kind, Phase
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


@dataclass(frozen=True)
class Passes:
    """Tensors of one block and micro batch in bytes.

    `forward`: (size, kept) in the order of operators. A backward pass first recomputes `again`, then allocates `gradients` one
    after the other, with two alive at a time, and leaves `raw` weight gradients. `beside` lives through the whole pass: the
    loss's temporaries, and inputs gathered again. `late` stays after the first half, if the schedule splits the pass.
    """

    forward: tuple[tuple[float, bool], ...]
    again: tuple[float, ...]
    gradients: tuple[float, ...]
    raw: tuple[float, ...]
    beside: tuple[float, ...]
    late: tuple[float, ...]


def passes_of(workload: Workload, block: Block, need: Needs, raw_gradient: float) -> Passes:
    """Passes of `block`, whose sums are `need`; `raw_gradient` bytes per parameter outlive its backward pass."""
    habit = habits(workload.job.runtime.framework)
    kept = _kept_bytes(workload, block, need)
    outputs = [size for row in block.forward if (size := output_bytes(workload, row)) > 0.0]
    chain = [
        size for row in block.backward if workload.ops.phase[row] != Phase.RECOMPUTE and (size := output_bytes(workload, row)) > 0.0
    ]
    loss, gathered = _loss(workload, block, habit, need), 0.0
    if not loss:
        gathered = max(0.0, need.working - sum(block.tensors.again) - _pair(chain) - workload.boundary)
    return Passes(
        forward=_woven(kept, outputs),
        again=block.tensors.again,
        gradients=() if loss else tuple(chain),
        raw=tuple(raw_gradient * count for count in block.tensors.trained) if raw_gradient else (),
        beside=loss or ((gathered,) if gathered else ()),
        late=_late_bytes(workload, block, need),
    )


def output_bytes(workload: Workload, row: int) -> float:
    """Bytes of new memory that a row of the graph writes; 0 if it works in place or only its traffic is known."""
    table, runtime = workload.ops, workload.job.runtime
    m, n, k, batch = (float(column[row]) for column in (table.m, table.n, table.k, table.batch))
    kind, phase, width = table.kind[row], table.phase[row], runtime.compute_width
    if kind == Kind.COMM:
        if table.axis[row] != Axis.TP:
            return 0.0
        result = float(table.bytes[row])
        return {Comm.ALL_GATHER: result, Comm.REDUCE_SCATTER: result / workload.job.plan.tp}.get(Comm(int(table.comm[row])), 0.0)
    if kind == Kind.ATTENTION:
        return batch * m * k * width
    if kind == Kind.ATTENTION_BACKWARD:
        return batch * (m + 2.0 * n / float(table.extra[row])) * k * width
    if kind == Kind.SCAN:
        return batch * m * n * width
    if table.role[row] == Role.LOGITS_IN_BLOCKS:
        return 0.0
    if phase == Phase.WGRAD and runtime.fused_wgrad:
        return 0.0
    if kind == Kind.CROSS_ENTROPY or kind in (Kind.EMBEDDING, Kind.ELEMENTWISE) and phase == Phase.WGRAD:
        return 0.0
    return batch * m * n * width


def _kept_bytes(workload: Workload, block: Block, need: Needs) -> list[float]:
    """The block's saved tensors, and one more for what the framework saves beyond them (see `habits`)."""
    kept = list(block.tensors.kept or ((block.saved,) if block.saved else ()))
    extra = need.saved - sum(kept)
    return [*kept, extra] if extra >= 1.0 else kept


def _loss(workload: Workload, block: Block, habit: MemoryHabits, need: Needs) -> tuple[float, ...]:
    """Temporaries of the loss: fp32 copies of the logits, and a remainder."""
    if not need.logits:
        return ()
    kept = copy_per_logit(workload.job.runtime)
    copy = need.logits * kept / saved_per_logit(workload.job.runtime)
    unassigned = need.working - workload.boundary
    pieces = [copy] * int(unassigned // copy) if copy else []
    remainder = unassigned - sum(pieces)
    return (*pieces, remainder) if remainder >= 1.0 else tuple(pieces)


def _late_bytes(workload: Workload, block: Block, need: Needs) -> tuple[float, ...]:
    """Tensors kept for the weight gradients, one for each product; they add up to the block's `late` bytes."""
    table = workload.ops
    sizes = [
        float(table.batch[row]) * float(table.k[row]) * float(table.m[row] + table.n[row])
        for row in block.backward
        if table.kind[row] in (Kind.GEMM, Kind.GROUPED_GEMM) and table.phase[row] == Phase.WGRAD
    ]
    return tuple(size * need.late / sum(sizes) for size in sizes) if need.late > 0.0 else ()


def _pair(chain: Sequence[float]) -> float:
    """Largest sum of two consecutive tensors, bytes."""
    return max((a + b for a, b in pairwise((*chain, 0.0))), default=0.0)


def _woven(kept: Sequence[float], outputs: Sequence[float]) -> tuple[tuple[float, bool], ...]:
    """Saved tensors and temporary outputs in one order. For each saved tensor, one output of the same size is that tensor."""
    passing = list(outputs)
    for size in kept:
        same = next((place for place, output in enumerate(passing) if abs(size - output) < 1.0), None)
        if same is not None:
            del passing[same]
    merged: list[tuple[float, bool]] = []
    consumed = 0
    for place, size in enumerate(kept):
        upto = (place + 1) * len(passing) // (len(kept) + 1)
        merged += [(output, False) for output in passing[consumed:upto]]
        merged.append((size, True))
        consumed = upto
    return (*merged, *((output, False) for output in passing[consumed:]))
