"""The attention core over context-parallel ranks; each rank has a part of every sequence.

Communication is an all-gather (Llama 3, arXiv 2407.21783 section 3.3.2), a ring, an all-to-all over heads, or a ring over groups
that use the all-to-all. Rows are those of the slowest rank. Under a causal mask that is the last rank, if each rank has one
contiguous chunk.

Ring attention (Liu et al. 2023, arXiv 2310.01889): keys and values pass from rank to rank while attention runs over local ones.

As in Transformer Engine's AttnFuncWithCPAndKVP2P: forward sends keys and values on while it works on them, and merges the context
of each step by its log-sum-exp. Backward sends keys, values and their gradients, the gradients one step later, and starts where
forward ended, so that gradients end on the rank of their keys. PyTorch's context_parallel (`cp_library = "torch"`) sends keys of
all heads, merges in fp32 with separate kernels and sends gradients in fp32 in separate calls; its all_gather fetches all keys at
once and computes in the same blocks.

DeepSpeed-Ulysses (Jacobs et al. 2023, arXiv 2309.14509): all-to-alls give each rank a share of the heads of whole sequences.

Queries, keys and values are exchanged before the core, the context after it, and their gradients the other way. Each call sends a
packed copy, as Transformer Engine's flash_attn_a2a_communicate does; where chunks are balanced a second copy puts them in order.
"""

from __future__ import annotations

from windtunnel.workload.blocks.core import CoreHeads, flash, fused_attention, fused_unit, kernel, unfused_attention, visible
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit, join_rows

Rows = tuple[list[Op], list[Op]]
"""Forward and backward rows of one unit; waits are row indices within the unit."""

FP32 = 4.0
EAGER_MERGE = (11.0, 8.0, 7)
"""Reads, writes (16-bit numbers an element) and kernels of PyTorch's _SDPAMerger: cast, difference, product, difference in fp32."""


def parts_of(balance: str) -> int:
    """Chunks of a sequence that each rank has."""
    return 2 if balance == "zigzag" else 1


def seen_by(seq: int, ranks: int, balance: str, window: int | None, document: int | None) -> float:
    """Mean number of keys that a query of the slowest of `ranks` attends to, for causal attention within a document and a
    window."""
    length = document or seq
    chunk = seq // (ranks * parts_of(balance))

    def before(position: int) -> float:
        """Sum over the queries up to `position` of the keys that each attends to."""
        documents, rest = divmod(position, length)
        return documents * length * visible(length, window) + (rest * visible(rest, window) if rest else 0.0)

    sums = [before(end * chunk) - before((end - 1) * chunk) for end in range(1, ranks * parts_of(balance) + 1)]
    if balance == "zigzag":
        return max(first + last for first, last in zip(sums[:ranks], reversed(sums[ranks:]), strict=True)) / (2 * chunk)
    return max(sums) / chunk


def ring(tape: Tape, heads: CoreHeads, ranks: int, axis: Axis, share: int) -> Rows:
    # long: the kernels of a layer in the order in which they run
    """The fused core over `ranks` blocks of keys that travel around `axis`; this rank has the queries of `share` context ranks."""
    runtime = tape.job.runtime
    torch = runtime.cp_library == "torch"
    if torch:  # keys and values are repeated to every head before attention
        heads = heads._replace(groups=heads.queries)
    blocks = _blocks(tape, heads, ranks, share)
    tokens = tape.tokens * share
    size = float(tokens * heads.groups * (heads.dim + heads.value))  # keys and values of one rank, elements
    at_once = tape.job.cp_kind == "all_gather"

    def send(name: str, phase: Phase, moved: float, waits: tuple[int, ...], blocking: bool = False) -> Op:
        return tape.comm(name, phase, Comm.SEND_RECV, axis, moved, Stream.CP, blocking, waits)

    def gather(phase: Phase) -> Op:
        return tape.comm("kv gather", phase, Comm.ALL_GATHER, axis, ranks * size * tape.width, Stream.CP, False, (-1,))

    forward: list[Op] = []
    arrives: tuple[int, ...] = ()  # the call that brings the keys of a step
    for step, (core, _) in enumerate(blocks):
        following: tuple[int, ...] = arrives
        if step < ranks - 1 and not (at_once and step):
            forward.append(
                gather(Phase.FORWARD) if at_once else send("kv send", Phase.FORWARD, size * tape.width, () if step else (-1,))
            )
            following = (len(forward) - 1,)
        forward.append(core._replace(waits=arrives))
        if step:
            forward.append(_merge(tape, tokens * heads.queries * heads.value, torch and runtime.launch == "eager"))
        arrives = following

    backward: list[Op] = []
    arrives, ready = (), (-1,)  # `ready`: gradients that the next call sends
    gradients: tuple[int, ...] = ()
    for step, (_, core) in enumerate(reversed(blocks)):
        following, last = arrives, step == ranks - 1
        if torch:
            if not last and not (at_once and step):
                backward.append(
                    gather(Phase.DGRAD) if at_once else send("kv send", Phase.DGRAD, size * tape.width, () if step else (-1,))
                )
                following = (len(backward) - 1,)
        else:  # keys and values are sent until the last step, their gradients from the second step on
            moved = size * tape.width * ((not last) + (step > 0))
            backward.append(send("kv and gradient send" if step else "kv send", Phase.DGRAD, moved, ready))
            following = (len(backward) - 1,)
            gradients = following if step else ()
        backward.append(core._replace(waits=arrives))
        if step:
            width = FP32 / tape.width if torch else 1.0
            adds = tape.elementwise("kv gradient add", Phase.DGRAD, size, 1.0 + width, width)._replace(waits=gradients)
            backward += [
                tape.elementwise("query gradient add", Phase.DGRAD, float(tokens * heads.queries * heads.dim), 1.0 + width, width),
                adds,
            ]
        ready = (len(backward) - 1,)
        if torch:
            backward.append(send("kv gradient send", Phase.DGRAD, size * FP32, ready, blocking=last))
            gradients = (len(backward) - 1,)
        arrives = following
    return forward, backward


def _blocks(tape: Tape, heads: CoreHeads, ranks: int, share: int) -> list[tuple[Op, Op]]:
    """The kernels of each step: the rank's own block under the causal mask, then those of the ranks before. With balanced chunks
    all queries of the last rank attend to the early chunk of every other rank, and none to the late one."""
    plan = tape.job.plan
    length = (plan.document or plan.seq) // ranks  # a ring splits every document over its ranks
    sequences = tape.tokens * share // length
    earlier = length // parts_of(plan.cp_balance)
    own = kernel(tape, heads, sequences, length, length, visible(length, None))
    other = kernel(tape, heads, sequences, length, earlier, float(earlier))
    return [own, *[other] * (ranks - 1)]


def _merge(tape: Tape, elements: int, eager: bool) -> Op:
    """Merges the context of a step into the total: reads both, writes one; log-sum-exps are small."""
    reads, writes, launches = EAGER_MERGE if eager else (2.0, 1.0, 1)
    return tape.elementwise("context merge", Phase.FORWARD, float(elements), reads, writes, launches)


def swap_heads(tape: Tape, heads: CoreHeads, ranks: int, axis: Axis, core: Rows) -> Rows:
    """`core` on a share of the heads, between all-to-alls over `axis`."""
    queries = float(tape.tokens * heads.queries)
    keys = float(tape.tokens * heads.groups)
    three = (("query", queries * heads.dim), ("key", keys * heads.dim), ("value", keys * heads.value))
    context = (("context", queries * heads.value),)
    return (
        _add_exchanges(tape, Phase.FORWARD, "exchange", three, core[0], context, axis),
        _add_exchanges(tape, Phase.DGRAD, "gradient exchange", context, core[1], three, axis),
    )


def _add_exchanges(
    tape: Tape,
    phase: Phase,
    what: str,
    before: tuple[tuple[str, float], ...],
    core: list[Op],
    after: tuple[tuple[str, float], ...],
    axis: Axis,
) -> list[Op]:
    rows = join_rows(_exchange(tape, phase, what, before, axis), core)
    return join_rows(rows, _exchange(tape, phase, what, after, axis))


def _exchange(tape: Tape, phase: Phase, what: str, tensors: tuple[tuple[str, float], ...], axis: Axis) -> list[Op]:
    """Each tensor is packed, then sent while the next one is packed; the row after them waits for all."""
    rows: list[Op] = []

    def copy(name: str, elements: float, waits: tuple[int, ...]) -> Op:
        return tape.elementwise(name, phase, elements, 1, 1, kind=Kind.COPY)._replace(waits=waits)

    calls: list[int] = []
    for name, elements in tensors:
        rows.append(copy(f"{name} pack", elements, ()))
        rows.append(
            tape.comm(
                f"{name} {what}",
                phase,
                Comm.ALL_TO_ALL,
                axis,
                elements * tape.width,
                Stream.CP,
                blocking=False,
                waits=(len(rows) - 1,),
            )
        )
        calls.append(len(rows) - 1)
    if parts_of(tape.job.plan.cp_balance) == 2:
        rows += [copy(f"{name} chunks in order", elements, (call,)) for (name, elements), call in zip(tensors, calls, strict=True)]
    else:
        rows[calls[-1]] = rows[calls[-1]]._replace(blocking=True)
    return rows


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
    tape.add(fused_unit(tape, core_heads, rows))


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
