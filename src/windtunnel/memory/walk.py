"""Activations over a step: bytes that each pass of each virtual stage allocates and frees, and their peak.

A forward pass leaves its blocks' saved tensors behind. The backward pass of the same micro batch frees them block by block, last
one first, while it holds one block's working set: recomputed tensors, gradients of activations, gathered inputs. If the schedule
splits the backward pass, the first half leaves the operands of the second: inputs of the linear layers, saved or
recomputed, and gradients of their outputs (Qi et al. 2023, table 1: 32 bytes per token and hidden unit of a layer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.memory.habits import MemoryHabits, habits
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.job import Job
from windtunnel.spec.requirements.precision import NARROW
from windtunnel.spec.runtime import Runtime
from windtunnel.workload.blocks.quantise import copies, recipe
from windtunnel.workload.graph import Chunk, Workload
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import CONTEXT_AXES, DTYPES, Axis, Comm, Kind, OpTable, Phase
from windtunnel.workload.schedules import Pass

_IS_CONTEXT = np.isin(np.arange(max(Axis) + 1), CONTEXT_AXES)
_IS_NARROW = np.isin(DTYPES, NARROW)
_WIDTHS = np.array([DTYPE_BYTES[name] for name in DTYPES])


def copy_per_logit(runtime: Runtime) -> float:
    """Bytes per logit that the head block counts as saved beside the 16-bit (or fp32) logits: the fp32 probabilities."""
    return 4.0 if runtime.keeps_fp32_logits else 0.0


def saved_per_logit(runtime: Runtime) -> float:
    """Bytes per logit that the head block counts as saved."""
    return copy_per_logit(runtime) + (runtime.compute_width if runtime.keeps_logits else 0.0)


def in_place_per_logit(runtime: Runtime) -> float:
    """Bytes per logit at the peak of a loss in place.

    Megatron-Core since 0.8 (tensor_parallel/cross_entropy.py, read at d98e8a64): `float()` makes the one fp32 copy, and maximum,
    exponential, division and gradient overwrite it, as the 16-bit logits lie beside it in forward and their gradient in backward:
    4 + 2. --cross-entropy-loss-fusion (fusions/fused_cross_entropy.py) compiles the same lines with torch.compile, which writes
    `grad_2d[rows, targets] -= 1` into a second fp32 copy, since what the input gets back is that times the gradient of the loss
    (the generated code of torch 2.13): 4 + 4 + 2. Transformer Engine's kernel writes the gradient over the 16-bit logits
    (common/triton/cross_entropy.py until July 2026): 2.
    """
    width = runtime.compute_width
    if not runtime.fp32_logits:
        return width
    return 4.0 + (4.0 if runtime.fused_cross_entropy else 0.0) + (width if width < 4.0 else 0.0)


@dataclass(frozen=True)
class Needs:
    """Bytes of one block: `saved` per micro batch, `working` in its backward pass, `logits` the part of `saved` that is logits,
    `late` what its weight gradients need after its input's gradient, `offloaded` what is kept outside the GPU, `behind_loss` the
    working set of the output matrix's gradients, when the loss has freed the logits that it saved, `holes` what the loss leaves
    reserved beside its peak."""

    saved: float
    working: float
    logits: float
    parameters: float
    late: float
    offloaded: float = 0.0
    behind_loss: float = 0.0
    holes: float = 0.0


class Buffers(NamedTuple):
    """Bytes of a stage's buffers in the backward passes of its `layers`; while the `loss` has its gradient computed; and in the
    pass of the `head` behind it. They differ under full sharding alone, where gradients and their sums come behind the loss."""

    layers: float
    loss: float
    head: float


NO_BUFFERS = Buffers(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Peak:
    """The peak of a stage's activations and buffers, in bytes by kind. `gradients`: those of weights that the step has allocated by
    then, where none is there at its start. `holes`: what is reserved beside it."""

    activations: float
    logits: float
    working: float
    gradients: float = 0.0
    buffers: float = 0.0
    holes: float = 0.0

    @property
    def total(self) -> float:
        return self.activations + self.logits + self.working + self.gradients + self.buffers


class Arriving(NamedTuple):
    """Gradients of weights in a backward pass that starts without any: `width` bytes for each parameter, of which those of the
    blocks behind stay, or none (`passing`), where each parameter is updated at once. `tied`: those of an output matrix that is the
    embedding's too, which come first and stay until the embedding has added its own to them."""

    width: float
    passing: bool = False
    tied: float = 0.0


def gradients_arrive(job: Job, micro_batches: int | None = None) -> bool:
    """Whether a step begins without gradients, so that they are not there when activations are at their most: PyTorch's optimizers
    free them after an update, one micro batch makes them, and nothing has buckets for them (one rank or FSDP's shards, no
    pipeline)."""
    plan, habit = job.plan, habits(job.runtime.framework)
    apart = job.dp * plan.cp == 1 or plan.sharding in ("fsdp", "hsdp")
    alone = apart and plan.pp == 1 and (micro_batches or job.micro_batches) == 1
    return job.runtime.optimizer_in_backward or alone and habit.flat == "none" and habit.lazy_moments


def arriving_gradients(job: Job, gradients: float, parameters: float) -> Arriving | None:
    """Gradients that a backward pass allocates, `gradients` bytes of a stage's `parameters` trained elements in all; None where
    they are there before it."""
    if not gradients_arrive(job) or not parameters:
        return None
    runtime, tied = job.runtime, 0.0
    width = gradients / parameters
    if runtime.optimizer_in_backward:
        width = DTYPE_BYTES[runtime.gradient_dtype] / (job.shard_ranks if job.plan.shards_parameters else 1)
    if not isinstance(job.model, GraphModel) and job.model.tied_embeddings and job.model.lora is None and job.ends_meet:
        tied = width * float(job.vocab_elements)
    return Arriving(width, runtime.optimizer_in_backward, tied)


def block_needs(workload: Workload) -> tuple[Needs, ...]:
    """Needs of every block of the workload, once for all stages."""
    job, blocks = workload.job, workload.blocks
    if isinstance(job.model, GraphModel):  # a graph model counts its tensors one by one
        return tuple(Needs(block.saved, block.working, 0.0, block.parameters, 0.0, block.offloaded) for block in blocks)
    table, runtime, plan, habit = workload.ops, job.runtime, job.plan, habits(job.runtime.framework)
    width = runtime.compute_width
    ahead, back = _Ranges.of([block.forward for block in blocks]), _Ranges.of([block.backward for block in blocks])
    gathers = np.where((table.comm == Comm.ALL_GATHER) & (table.axis == Axis.TP), table.bytes, 0.0)
    gradients = back.most(_gradients(workload))
    temporary = gradients * width + back.most(gathers) + back.most(_context(table)) + workload.boundary
    kept = ahead.total(gathers) * (1.0 - 1.0 / plan.tp) if runtime.keeps_gathered and plan.sequence_parallel else None
    weights = (table.phase == Phase.WGRAD) & ((table.kind == Kind.GEMM) | (table.kind == Kind.GROUPED_GEMM))
    operands = np.where(weights, table.batch * table.k * (table.m + table.n), 0) * np.minimum(_WIDTHS[table.dtype], width)
    again = back.total(np.where(table.phase == Phase.WGRAD, gathers, 0.0)) * (1.0 - 1.0 / plan.tp)
    late = np.maximum(0.0, back.total(operands) - again)  # operands are kept quantised
    losses, needs = np.flatnonzero(table.kind == Kind.CROSS_ENTROPY).tolist(), []
    for place, block in enumerate(blocks):
        saved, working, logits = block.saved, block.working + float(temporary[place]), 0.0
        behind = holes = 0.0
        if kept is not None:
            if block.working > 0.0 and plan.recompute in ("ops", "full"):
                working += float(kept[place])
            else:
                saved += float(kept[place])
        loss = next((row for row in losses if row in block.forward), None)
        if loss is not None:
            elements = float(table.m[loss]) * float(table.n[loss])
            logits, working = _logits(workload, habit, elements)
            behind, holes = width * elements + workload.boundary, _holes(workload, habit, elements)
        elif plan.recompute == "ops" and runtime.launch == "eager" and block.working > 0.0:
            saved += _unread(workload, slice(block.forward.start, block.forward.stop), width)
        offloaded = block.offloaded
        if offloaded and not block.saved:  # what the framework saves beyond the graph's tensors is offloaded with them
            offloaded, working, saved = offloaded + saved, working + saved, 0.0
        needs.append(Needs(saved, working, logits, block.parameters, float(late[place]), offloaded, behind, holes))
    return tuple(needs)


@dataclass(frozen=True)
class _Ranges:
    """B ranges of rows, of which a column is reduced at once; `bounds` [2 B]: begin and end of each."""

    bounds: npt.NDArray[np.int64]

    @classmethod
    def of(cls, ranges: Sequence[range]) -> _Ranges:
        return cls(np.array([(rows.start, rows.stop) for rows in ranges], np.int64).reshape(-1))

    def most(self, column: Floats) -> Floats:
        """[B] largest value of a column of values of at least 0."""
        return self._reduce_ranges(np.maximum, column)

    def total(self, column: Floats) -> Floats:
        """[B] sums of a column."""
        return self._reduce_ranges(np.add, column)

    def _reduce_ranges(self, way: np.ufunc, column: Floats) -> Floats:
        reduced = way.reduceat(np.append(column, 0.0), self.bounds)[::2]
        return np.where(self.bounds[::2] < self.bounds[1::2], reduced, 0.0)


def _gradients(workload: Workload) -> Floats:
    """[rows] elements beside an operator's working set in a backward pass: the gradient of its output beside that of its input."""
    table, low = workload.ops, recipe(workload.job.runtime)
    kind, batch, m, n, k = table.kind, table.batch, table.m, table.n, table.k
    data = table.phase == Phase.DGRAD
    product = ((kind == Kind.GEMM) | (kind == Kind.GROUPED_GEMM)) & data
    elements = np.where(product, batch * m * (n + k), 0.0)
    if workload.job.runtime.moe_weights_by_index:  # zeros of all experts' weights, beside the sum over the experts so far
        elements = np.where((kind == Kind.GROUPED_GEMM) & (table.phase == Phase.WGRAD), batch * m * n, elements)
    lora = getattr(workload.job.model, "lora", None)
    if lora is not None and lora.base != "none":  # the 16-bit weight; that of one expert at a time
        elements += np.where(product & (table.role != Role.ROUTER), n * k, 0.0)
    if low is not None:  # the output's gradient beside its quantised copies
        narrow = _IS_NARROW[table.dtype] & (elements > 0)
        width = workload.job.runtime.compute_width
        elements += np.where(narrow, batch * m * k * copies(workload.job) * low.width / width, 0.0)
    elements = np.where((kind == Kind.SOFTMAX) & data, 2 * m * n, elements)
    return np.where(kind == Kind.ATTENTION_BACKWARD, 2 * batch * (m + n) * k, elements)


def _logits(workload: Workload, habit: MemoryHabits, elements: float) -> tuple[float, float]:
    """Bytes of so many saved logits, and of the working set of their loss."""
    runtime, width = workload.job.runtime, workload.job.runtime.compute_width
    materialised = runtime.cross_entropy in ("vocab_parallel", "gathered")  # else the logits are never in memory all at once
    present = saved_per_logit(runtime) if materialised else 0.0
    bytes_per_logit = habit.fused_loss if runtime.fused_cross_entropy else habit.loss[workload.job.plan.tp > 1]
    bytes_per_logit = bytes_per_logit if runtime.fp32_logits else 2.0 * width  # logits, and their gradient beside them
    if materialised and runtime.loss_in_place:
        bytes_per_logit = in_place_per_logit(runtime)
    if materialised and runtime.loss_parts > 1:
        part = elements / runtime.loss_parts * _part_of_loss(runtime)
        sharded = workload.job.plan.shards_parameters and workload.job.shard_ranks > 1
        sums = 1.0 if sharded else 2.0  # sharded, the buffers have that of all parts
        return elements * present, part + sums * output_gradient(workload) + workload.boundary
    working = max(0.0, bytes_per_logit - present) * elements
    passing = runtime.wgrad_placeholders != "none" and not keeps_output_gradient(runtime)
    if materialised and runtime.fused_wgrad and passing:
        # beside the logits' gradient, once the loss has freed the rest (tensor_parallel/layers.py: grad_weight = torch.empty)
        working = max(working, (width - present) * elements + output_gradient(workload))
    return elements * present, working + workload.boundary


def _holes(workload: Workload, habit: MemoryHabits, elements: float) -> float:
    """Bytes that an unfused loss of so many logits leaves reserved beside its peak."""
    runtime = workload.job.runtime
    materialised = runtime.cross_entropy in ("vocab_parallel", "gathered") and runtime.loss_parts == 1
    if not materialised or runtime.loss_in_place or runtime.fused_cross_entropy or not runtime.fp32_logits:
        return 0.0
    return habit.loss_holes[workload.job.plan.tp > 1] * elements


def _part_of_loss(runtime: Runtime) -> float:
    """Bytes per logit of the part of the logits whose gradient is being computed, beside what is saved of all parts.

    Compiled, cast and loss are one kernel that writes the gradient in 16 bits. Else the backward pass writes the gradients of the
    logarithm of the softmax, of the fp32 logits and of the 16-bit ones (torchtune modules/loss/ce_chunked_output_loss.py).
    """
    width = runtime.compute_width
    return width if runtime.fused_cross_entropy else 2 * 4.0 + width


def keeps_output_gradient(runtime: Runtime) -> bool:
    """Whether the placeholder of the output matrix's gradient stays: Megatron-Core since 0.14 takes it from Transformer Engine,
    which keeps one of each shape (tensor_parallel/layers.py: get_dummy_wgrad)."""
    return runtime.fused_wgrad and runtime.keeps_output_placeholder and runtime.wgrad_placeholders in ("linear", "all")


def output_gradient(workload: Workload) -> float:
    """Bytes of a gradient of the output matrix in compute precision: of one part of the logits, which autograd adds to that of the
    parts before it; or the placeholder of a fused product."""
    job = workload.job
    if isinstance(job.model, GraphModel) or job.has_frozen_weights:
        return 0.0
    return job.runtime.compute_width * float(job.vocab_elements)


def _context(table: OpTable) -> Floats:
    """[rows] buffers of context parallelism: gathered keys and values, the result of an all-to-all, or the blocks of a ring in use
    and in transfer."""
    context = _IS_CONTEXT[table.axis]
    if not context.any():
        return np.zeros(len(table))
    copies = np.select([table.comm == Comm.SEND_RECV, table.comm == Comm.REDUCE_SCATTER], [2.0, 0.0], 1.0)
    return np.where(context, table.bytes * copies, 0.0)


def _unread(workload: Workload, rows: slice, width: float) -> float:
    """Output of the block's last matrix product: eager op-level checkpointing caches it although backward never reads it.

    PyTorch's selective checkpointing stores the output of every listed operator; a compiled graph drops those without a reader.
    """
    table = workload.ops
    products = np.flatnonzero(table.kind[rows] == Kind.GEMM)
    last = products[-1] if len(products) else None
    return 0.0 if last is None else float(table.m[rows][last]) * float(table.n[rows][last]) * width


def chunk_bytes(workload: Workload, stage: int, needs: tuple[Needs, ...]) -> tuple[float, ...]:
    """Bytes that one micro batch leaves behind in each virtual stage of `stage`."""
    plan, habit = workload.job.plan, habits(workload.job.runtime.framework)
    sizes = []
    for virtual, chunk in enumerate(workload.stages[stage]):
        last = workload.job.places[stage][virtual] == plan.pp * plan.vpp - 1
        output = workload.boundary if habit.keeps_outputs and plan.pp > 1 and not last else 0.0
        sizes.append(output + sum(needs[b].saved * times for b, times in chunk.blocks))
    return tuple(sizes)


def _late_bytes(workload: Workload, stage: int, needs: tuple[Needs, ...]) -> tuple[float, ...]:
    """Bytes that one micro batch leaves between the halves of its backward pass in each virtual stage of `stage`."""
    return tuple(sum(needs[b].late * times for b, times in chunk.blocks) for chunk in workload.stages[stage])


def _levels(workload: Workload, stage: int, needs: tuple[Needs, ...]) -> npt.NDArray[np.float64]:
    """Bytes of activations after each action."""
    saved, late = (
        np.array(size, np.float64) for size in (chunk_bytes(workload, stage, needs), _late_bytes(workload, stage, needs))
    )
    change = np.stack([saved, -saved, late - saved, -late])  # by `Pass`
    direction, chunk, _, _ = workload.passes(stage).T
    return np.cumsum(change[direction, chunk])


def activation_walk(workload: Workload, stage: int) -> npt.NDArray[np.float64]:
    """Bytes of activations that `stage` holds after each of its schedule's actions; the last one is 0."""
    levels = _levels(workload, stage, block_needs(workload))
    return np.where(np.abs(levels) < 1.0, 0.0, levels)  # rounding of sums


def peak_of(
    workload: Workload,
    stage: int,
    needs: tuple[Needs, ...],
    raw_gradient: float,
    arriving: Arriving | None = None,
    buffers: Buffers = NO_BUFFERS,
) -> Peak:
    """Peak of the activations and `buffers` of `stage`; `raw_gradient` bytes per parameter accumulate during one backward pass.
    `arriving`: gradients that the pass allocates; None where they are there before it."""
    chunks = workload.stages[stage]
    direction, chunk, _, pairs = workload.passes(stage).T
    levels = np.append(0.0, _levels(workload, stage, needs)[:-1])
    if workload.job.runtime.moe_a2a_overlap and pairs.any():
        levels = _in_step(workload, stage, needs, levels, chunk, np.flatnonzero(pairs))
    before = np.full(len(Pass) * len(chunks), -1.0)  # highest level at the start of a pass; -1: no such pass
    np.maximum.at(before, direction * len(chunks) + chunk, levels)
    # DeepSpeed frees them when the next backward pass starts, so they are present during forward passes
    waiting = _Point(0.0, 0.0, raw_gradient * workload.stage_parameters[stage], 0.0, min(buffers))
    known, starts, parts = dict[tuple[object, Pass], Floats](), list[float](), list[Floats]()
    for each, of_ways in zip(chunks, before.reshape(len(Pass), -1).T.tolist(), strict=True):
        for way, start in zip(Pass, of_ways, strict=True):
            if way is Pass.FORWARD or start < 0.0:  # what a forward pass adds is seen at the start of the next backward pass
                continue
            if (key := (each.blocks, way)) not in known:
                half = way is Pass.INPUT_GRADIENT
                of_way = [] if way is Pass.WEIGHT_GRADIENT else _points(each, needs, raw_gradient, half, arriving, buffers)
                known[key] = np.array([waiting, *of_way])
            starts.append(start)
            parts.append(known[key])
    if not parts:
        return Peak(0.0, 0.0, 0.0)
    points = np.concatenate(parts)
    activations = np.repeat(starts, [len(part) for part in parts]) - points[:, 0] - points[:, 1]
    most = int(np.argmax(total := activations + points[:, 1] + points[:, 2] + points[:, 3] + points[:, 4]))
    return Peak(float(activations[most]), *points[most, 1:].tolist()) if total[most] > 0.0 else Peak(0.0, 0.0, 0.0)


def _in_step(
    workload: Workload,
    stage: int,
    needs: tuple[Needs, ...],
    levels: npt.NDArray[np.float64],
    chunk: npt.NDArray[np.int64],
    pairs: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Levels at the start of each action if the two passes of a pair alternate layer by layer: the forward pass reuses memory that
    the backward pass frees, and is at most one layer ahead (Megatron-Core's combined_1f1b.py)."""
    saved = np.array(chunk_bytes(workload, stage, needs))
    layer = np.array([max((needs[b].saved for b, _ in each.blocks), default=0.0) for each in workload.stages[stage]])
    ahead, back = chunk[pairs], chunk[pairs + 1]
    in_step = levels.copy()
    in_step[pairs + 1] = levels[pairs] + layer[ahead] + np.maximum(0.0, saved[ahead] - saved[back])
    return in_step


class _Point(NamedTuple):
    """Bytes at a moment of a backward pass: freed so far, remaining logits, working set, gradients of weights, buffers, and what is
    reserved beside them."""

    released: float
    logits: float
    working: float
    gradients: float
    buffers: float
    holes: float = 0.0


def _points(
    chunk: Chunk, needs: tuple[Needs, ...], raw_gradient: float, half: bool, arriving: Arriving | None, buffers: Buffers
) -> list[_Point]:
    """Both ends of each run of equal blocks, in backward order.

    `half`: the pass keeps what the weight gradients need, which may be more than it frees. The head's own gradients come when the
    loss has freed its part of the logits.
    """
    points = []
    width, passing, tied = arriving or Arriving(0.0)
    released = raw = held = 0.0
    for index, times in reversed(chunk.blocks):
        need = needs[index]
        freed = need.saved - (need.late if half else 0.0)
        own = width * need.parameters
        beside = 0.0 if need.logits else own
        around = buffers.loss if need.logits else buffers.layers
        points.append(_Point(released, need.logits, need.working + raw, held + (beside if passing else 0.0), around, need.holes))
        if need.logits:
            points.append(_Point(released + need.logits, 0.0, need.behind_loss + raw, held, buffers.head))
        raw += 0.0 if half else raw_gradient * need.parameters * times
        last = held + beside * (1.0 if passing else times)
        points.append(_Point(released + (times - 1) * freed, need.logits, need.working + raw, last, around, need.holes))
        held += (0.0 if passing else own * times) + (tied if need.logits else 0.0)
        released += times * freed
    return points
