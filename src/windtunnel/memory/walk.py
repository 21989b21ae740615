"""Activations over a step: bytes that each pass of each virtual stage allocates and frees, and their peak.

A forward pass leaves its blocks' saved tensors behind. The backward pass of the same micro batch frees them block by block, last
one first, while it holds one block's working set: recomputed tensors, gradients of activations, gathered inputs. If the schedule
splits the backward pass, the first half leaves the operands of the second: inputs of the linear layers, saved or
recomputed, and gradients of their outputs (Qi et al. 2023, table 1: 32 bytes per token and hidden unit of a layer).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from windtunnel.memory.habits import MemoryHabits, habits
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.precision import NARROW
from windtunnel.spec.runtime import Runtime
from windtunnel.workload.blocks.quantise import copies, recipe
from windtunnel.workload.graph import Block, Chunk, Workload
from windtunnel.workload.ops import CONTEXT_AXES, DTYPES, Axis, Comm, Kind, OpTable, Phase
from windtunnel.workload.schedules import Pass, table

_IS_CONTEXT = np.isin(np.arange(max(Axis) + 1), CONTEXT_AXES)
_IS_NARROW = np.isin(DTYPES, NARROW)
_WIDTHS = np.array([DTYPE_BYTES[name] for name in DTYPES])


def copy_per_logit(runtime: Runtime) -> float:
    """Bytes per logit that the head block counts as saved beside the 16-bit (or fp32) logits: the fp32 probabilities."""
    return 4.0 if runtime.fp32_logits else 0.0


@dataclass(frozen=True)
class Needs:
    """Bytes of one block: `saved` per micro batch, `working` in its backward pass, `logits` the part of `saved` that is logits,
    `late` what its weight gradients need after its input's gradient, `offloaded` what is kept outside the GPU."""

    saved: float
    working: float
    logits: float
    parameters: float
    late: float
    offloaded: float = 0.0


@dataclass(frozen=True)
class Peak:
    """The peak of a stage's activations, in bytes by kind."""

    activations: float
    logits: float
    working: float

    @property
    def total(self) -> float:
        return self.activations + self.logits + self.working


def block_needs(workload: Workload) -> tuple[Needs, ...]:
    """Needs of every block of the workload, once for all stages."""
    return tuple(_needs(workload, block, habits(workload.job.runtime.framework)) for block in workload.blocks)


def _needs(workload: Workload, block: Block, habit: MemoryHabits) -> Needs:
    if isinstance(workload.job.model, GraphModel):  # a graph model counts its tensors one by one
        return Needs(block.saved, block.working, 0.0, block.parameters, 0.0, block.offloaded)
    table, runtime, plan = workload.ops, workload.job.runtime, workload.job.plan
    width = runtime.compute_width
    rows = slice(block.backward.start, block.backward.stop)
    ahead = slice(block.forward.start, block.forward.stop)
    kind, phase = table.kind[rows], table.phase[rows]
    m, n, k, batch = table.m[rows], table.n[rows], table.k[rows], table.batch[rows]
    # gradient of an operator's output beside that of its input
    matrix = (kind == Kind.GEMM) | (kind == Kind.GROUPED_GEMM)
    product = np.where(matrix & (phase == Phase.DGRAD), batch * m * (n + k), 0.0)
    low = recipe(runtime)
    if low is not None:  # the output's gradient beside its quantised copies
        narrow = _IS_NARROW[table.dtype[rows]]
        product += np.where(narrow & (product > 0), batch * m * k * copies(workload.job) * low.width / width, 0.0)
    softmax = np.where((kind == Kind.SOFTMAX) & (phase == Phase.DGRAD), 2 * m * n, 0)
    fused = np.where(kind == Kind.ATTENTION_BACKWARD, 2 * batch * (m + n) * k, 0)
    gathered = np.where((table.comm[rows] == Comm.ALL_GATHER) & (table.axis[rows] == Axis.TP), table.bytes[rows], 0.0)
    gradients = float(max((product.max(initial=0), softmax.max(initial=0), fused.max(initial=0)))) * width
    working = block.working + gradients + float(gathered.max(initial=0.0)) + _context(table, rows) + workload.boundary
    saved, logits = block.saved, 0.0
    if habit.saves_gathered and plan.sequence_parallel:
        inputs = (table.comm[ahead] == Comm.ALL_GATHER) & (table.axis[ahead] == Axis.TP)
        kept = float(table.bytes[ahead][inputs].sum()) * (1.0 - 1.0 / plan.tp)
        if block.working > 0.0 and plan.recompute in ("ops", "full"):
            working += kept
        else:
            saved += kept
    loss = np.flatnonzero(table.kind[ahead] == Kind.CROSS_ENTROPY)
    if len(loss):
        elements = float(table.m[ahead][loss[0]]) * float(table.n[ahead][loss[0]])
        materialised = runtime.cross_entropy in ("vocab_parallel", "gathered")  # else the logits are never in memory all at once
        present = width + copy_per_logit(runtime) if materialised else 0.0
        logits = elements * present
        bytes_per_logit = habit.fused_loss if runtime.fused_cross_entropy else habit.loss[plan.tp > 1]
        bytes_per_logit = bytes_per_logit if runtime.fp32_logits else 2.0 * width  # logits, and their gradient beside them
        working = max(0.0, bytes_per_logit - present) * elements + workload.boundary
    elif plan.recompute == "ops" and runtime.launch == "eager" and block.working > 0.0:
        saved += _unread(workload, ahead, width)
    size = np.minimum(_WIDTHS[table.dtype[rows]], width)  # operands are kept quantised
    factors = (np.where(matrix & (phase == Phase.WGRAD), batch * k * (m + n), 0) * size).sum()
    again = (phase == Phase.WGRAD) & (table.comm[rows] == Comm.ALL_GATHER) & (table.axis[rows] == Axis.TP)
    cut = 0.0 if habit.saves_gathered else float(table.bytes[rows][again].sum()) * (1.0 - 1.0 / plan.tp)
    offloaded = block.offloaded
    if offloaded and not block.saved:  # what the framework saves beyond the graph's tensors is offloaded with them
        offloaded, working, saved = offloaded + saved, working + saved, 0.0
    return Needs(saved, working, logits, block.parameters, max(0.0, float(factors) - cut), offloaded)


def _context(table: OpTable, rows: slice) -> float:
    """Largest buffers of context parallelism in a backward pass: gathered keys and values, the result of an all-to-all, or the
    blocks of a ring in use and in transfer."""
    context = _IS_CONTEXT[table.axis[rows]]
    if not context.any():
        return 0.0
    sizes = np.where(context, table.bytes[rows], 0.0)
    copies = np.select([table.comm[rows] == Comm.SEND_RECV, table.comm[rows] == Comm.REDUCE_SCATTER], [2.0, 0.0], 1.0)
    return float((sizes * copies).max())


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


def _late(workload: Workload, stage: int, needs: tuple[Needs, ...]) -> tuple[float, ...]:
    """Bytes that one micro batch leaves between the halves of its backward pass in each virtual stage of `stage`."""
    return tuple(sum(needs[b].late * times for b, times in chunk.blocks) for chunk in workload.stages[stage])


def _levels(workload: Workload, stage: int, needs: tuple[Needs, ...]) -> npt.NDArray[np.float64]:
    """Bytes of activations after each action."""
    saved, late = (np.array(size, np.float64) for size in (chunk_bytes(workload, stage, needs), _late(workload, stage, needs)))
    change = np.stack([saved, -saved, late - saved, -late])  # by `Pass`
    direction, chunk, _, _ = table(workload.schedule[stage]).T
    return np.cumsum(change[direction, chunk])


def activation_walk(workload: Workload, stage: int) -> npt.NDArray[np.float64]:
    """Bytes of activations that `stage` holds after each of its schedule's actions; the last one is 0."""
    levels = _levels(workload, stage, block_needs(workload))
    return np.where(np.abs(levels) < 1.0, 0.0, levels)  # rounding of sums


def peak_of(workload: Workload, stage: int, needs: tuple[Needs, ...], raw_gradient: float) -> Peak:
    """Peak of the activations of `stage`; `raw_gradient` bytes per parameter accumulate during one backward pass."""
    before = np.full((len(Pass), len(workload.stages[stage])), -1.0)  # highest level at the start of a pass; -1: no such pass
    direction, chunk, _, pairs = table(workload.schedule[stage]).T
    levels = np.append(0.0, _levels(workload, stage, needs)[:-1])
    if workload.job.runtime.moe_a2a_overlap and pairs.any():
        levels = _in_step(workload, stage, needs, levels, chunk, np.flatnonzero(pairs))
    np.maximum.at(before, (direction, chunk), levels)
    best = Peak(0.0, 0.0, 0.0)
    waiting = raw_gradient * workload.stage_parameters[stage]
    for virtual, way in product(range(before.shape[1]), Pass):
        start = float(before[way, virtual])
        if way is Pass.FORWARD or start < 0.0:  # what a forward pass adds is seen at the start of the backward pass that follows
            continue
        # DeepSpeed frees them when the next backward pass starts, so they are present during forward passes
        points = [(0.0, 0.0, waiting)]
        if way is not Pass.WEIGHT_GRADIENT:
            points += _points(workload.stages[stage][virtual], needs, raw_gradient, way is Pass.INPUT_GRADIENT)
        for released, logits, working in points:
            peak = Peak(start - released - logits, logits, working)
            if peak.total > best.total:
                best = peak
    return best


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


def _points(chunk: Chunk, needs: tuple[Needs, ...], raw_gradient: float, half: bool) -> list[tuple[float, float, float]]:
    """(bytes freed so far, remaining logits, working bytes) at both ends of each run of equal blocks, in backward order.

    `half`: the pass keeps what the weight gradients need, which may be more than it frees.
    """
    points = []
    released = raw = 0.0
    for index, times in reversed(chunk.blocks):
        need = needs[index]
        freed = need.saved - (need.late if half else 0.0)
        points.append((released, need.logits, need.working + raw))
        raw += 0.0 if half else raw_gradient * need.parameters * times
        points.append((released + (times - 1) * freed, need.logits, need.working + raw))
        released += times * freed
    return points
