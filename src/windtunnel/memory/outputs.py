"""Tensors that a pass of a block allocates, in order: saved ones, and temporary ones that only the next operator reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from windtunnel.memory.habits import MemoryHabits, habits
from windtunnel.memory.walk import Needs, copy_per_logit, saved_per_logit
from windtunnel.workload.graph import Block, Workload
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Axis, Comm, Kind, Phase


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
