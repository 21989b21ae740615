"""Which tensors a pass of a block makes, in order: what it keeps, and what only the next operator reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from windtunnel.memory.habits import MemoryHabits, habits
from windtunnel.memory.walk import Needs, copy_per_logit
from windtunnel.workload.graph import Block, Workload
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Axis, Comm, Kind, Phase


@dataclass(frozen=True)
class Passes:
    """Tensors of one block and micro batch in bytes.

    `forward` are (size, kept) in order of the operators. A backward pass first brings `again` back, then makes `gradients` one
    after the other, of which two live at a time, and leaves `raw` weight gradients. `beside` lives through the whole of it: the
    loss's temporaries, and inputs gathered once more. `late` stay after its first half, where the schedule cuts it in two.
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
    kept = _kept(workload, block, need)
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
        late=_late(workload, block, need),
    )


def output_bytes(workload: Workload, row: int) -> float:
    """Bytes of what one row of the graph writes to new memory; 0 where it works in place or is only known by its traffic."""
    table, runtime = workload.ops, workload.job.runtime
    m, n, k, batch = (float(column[row]) for column in (table.m, table.n, table.k, table.batch))
    kind, phase, width = table.kind[row], table.phase[row], runtime.compute_width
    if kind == Kind.COMM:
        if table.axis[row] != Axis.TP:
            return 0.0
        whole = float(table.bytes[row])
        return {Comm.ALL_GATHER: whole, Comm.REDUCE_SCATTER: whole / workload.job.plan.tp}.get(Comm(int(table.comm[row])), 0.0)
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


def _kept(workload: Workload, block: Block, need: Needs) -> list[float]:
    """The block's kept tensors; what frameworks keep beyond the graph's (see habits) is one more."""
    kept = list(block.tensors.kept or ((block.saved,) if block.saved else ()))
    more = need.saved - sum(kept)
    return [*kept, more] if more >= 1.0 else kept


def _loss(workload: Workload, block: Block, habit: MemoryHabits, need: Needs) -> tuple[float, ...]:
    """Temporaries of the loss: fp32 copies of the logits, and what is left over."""
    if not need.logits:
        return ()
    kept = copy_per_logit(workload.job.runtime)
    copy = need.logits * kept / (workload.job.runtime.compute_width + kept)
    left = need.working - workload.boundary
    pieces = [copy] * int(left // copy) if copy else []
    rest = left - sum(pieces)
    return (*pieces, rest) if rest >= 1.0 else tuple(pieces)


def _late(workload: Workload, block: Block, need: Needs) -> tuple[float, ...]:
    """What the weight gradients wait for, a piece for each of their products; they add up to the block's `late` bytes."""
    table = workload.ops
    sizes = [
        float(table.batch[row]) * float(table.k[row]) * float(table.m[row] + table.n[row])
        for row in block.backward
        if table.kind[row] in (Kind.GEMM, Kind.GROUPED_GEMM) and table.phase[row] == Phase.WGRAD
    ]
    return tuple(size * need.late / sum(sizes) for size in sizes) if need.late > 0.0 else ()


def _pair(chain: Sequence[float]) -> float:
    """Most bytes that two tensors in a row have."""
    return max((a + b for a, b in pairwise((*chain, 0.0))), default=0.0)


def _woven(kept: Sequence[float], outputs: Sequence[float]) -> tuple[tuple[float, bool], ...]:
    """Kept tensors and passing outputs in one order. For each kept tensor one output of its size is that tensor."""
    passing = list(outputs)
    for size in kept:
        same = next((place for place, other in enumerate(passing) if abs(size - other) < 1.0), None)
        if same is not None:
            del passing[same]
    found: list[tuple[float, bool]] = []
    done = 0
    for place, size in enumerate(kept):
        upto = (place + 1) * len(passing) // (len(kept) + 1)
        found += [(other, False) for other in passing[done:upto]]
        found.append((size, True))
        done = upto
    return (*found, *((other, False) for other in passing[done:]))
