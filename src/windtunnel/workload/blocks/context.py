"""The attention core over context-parallel ranks; each rank has a part of every sequence.

Communication is an all-gather (Llama 3, arXiv 2407.21783 section 3.3.2), a ring (`ring.py`), an all-to-all over heads
(`ulysses.py`), or a ring over groups that use the all-to-all. Rows are those of the slowest rank. Under a causal mask that is the
last rank, if each rank has one contiguous chunk.
"""

from __future__ import annotations

from windtunnel.workload.blocks.core import CoreHeads, flash, fused_attention, fused_unit, kernel, unfused_attention
from windtunnel.workload.blocks.ring import Rows, parts_of, ring, seen_by
from windtunnel.workload.blocks.ulysses import swap_heads
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit


def over_context(tape: Tape, heads: int, groups: int, dim: int, value: int) -> None:
    """Appends the attention core of `heads` query heads over `groups` key/value heads, `dim` and `value` wide."""
    job, core_heads = tape.job, CoreHeads(heads, groups, dim, value)
    kind, fused = job.cp_kind, job.runtime.attention == "flash"
    if kind is None:
        flash(tape, core_heads) if fused else unfused_attention(tape, core_heads, tape.seq)
        return
    if not fused:
        _unfused_attention(tape, core_heads)
        return
    swap, around = job.cp_sizes
    part = core_heads.share_of_heads(swap)
    if around == 1:
        ahead, back = fused_attention(tape, part)
        rows: Rows = ([ahead], [back])
    elif job.cp_blocks:
        rows = ring(tape, part, around, Axis.CP_RING if swap > 1 else Axis.CP, swap)
    else:
        rows = _gathered_attention(tape, part)
    if swap > 1:
        rows = swap_heads(tape, core_heads, swap, Axis.CP_HEADS if around > 1 else Axis.CP, rows)
    unit = fused_unit(tape, core_heads)
    unit.forward, unit.backward = rows
    tape.add(unit)


def _gathered_attention(tape: Tape, heads: CoreHeads) -> Rows:
    """Gathers keys and values of all ranks, then runs one kernel over this rank's queries. Only the rank's own keys and values are
    kept: backward gathers again."""
    plan = tape.job.plan
    queries, keys = tape.seq, plan.seq
    visible_keys = seen_by(plan.seq, plan.cp, plan.cp_balance, tape.window, plan.document)
    ahead, back = kernel(tape, heads, plan.micro_batch, queries, keys, visible_keys)
    size = float(plan.micro_batch * keys * heads.groups * (heads.dim + heads.value)) * tape.width

    def call(name: str, phase: Phase, comm: Comm) -> Op:
        return tape.comm(name, phase, comm, Axis.CP, size, Stream.CP)

    forward = [call("kv gather", Phase.FORWARD, Comm.ALL_GATHER), *_sort_chunks(tape, Phase.FORWARD, size), ahead]
    backward = [
        call("kv gather again", Phase.DGRAD, Comm.ALL_GATHER),
        *_sort_chunks(tape, Phase.DGRAD, size),
        back,
        *_sort_chunks(tape, Phase.DGRAD, size),
        call("kv grad scatter", Phase.DGRAD, Comm.REDUCE_SCATTER),
    ]
    return forward, backward


def _sort_chunks(tape: Tape, phase: Phase, size: float) -> list[Op]:
    """One copy that puts balanced chunks from the order of ranks into the order of positions."""
    if parts_of(tape.job.plan.cp_balance) == 1:
        return []
    return [Op("kv chunks in order", Kind.COPY, phase, tape.module, tape.activation_dtype, bytes=2.0 * size)]


def _unfused_attention(tape: Tape, heads: CoreHeads) -> None:
    """Separate kernels over gathered keys and values."""
    plan = tape.job.plan
    size = float(plan.micro_batch * plan.seq * heads.groups * (heads.dim + heads.value)) * tape.width
    unit = Unit("kv gather", core=True)
    unit.forward.append(tape.comm("kv gather", Phase.FORWARD, Comm.ALL_GATHER, Axis.CP, size, Stream.CP))
    unit.backward.append(tape.comm("kv grad scatter", Phase.DGRAD, Comm.REDUCE_SCATTER, Axis.CP, size, Stream.CP))
    tape.add(unit)
    unfused_attention(tape, heads, tape.seq)
