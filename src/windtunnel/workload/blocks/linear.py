"""Linear layers with the collectives of tensor and sequence parallelism: column parallel (output cut), row parallel (input cut).

Megatron's pairs (Shoeybi 2019; Korthikanti 2022): without sequence parallelism the column layer all-reduces its input gradient and
the row layer its output. With it, the column layer gathers its input and reduce-scatters its input gradient; the row layer does the
reverse.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from windtunnel.workload.blocks import quantise
from windtunnel.workload.blocks.quantise import Source
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit


def column(  # long: the kernels of a layer in the order in which they run
    tape: Tape, name: str, inputs: int, outputs: int, bias: bool, again: float = 0.0, source: Source = "", role: Role = Role.NONE
) -> None:
    """(tokens, inputs) -> (tokens, outputs / tp). `source`: the kernel that writes the input, see `quantise`."""
    runtime, tp, t = tape.job.runtime, tape.tp, tape.tokens
    out = outputs // tp
    size = t * inputs * tape.width
    local_elements = tape.local_tokens * inputs
    unit = Unit(
        name,
        role,
        parameters=inputs * out + (out if bias else 0),
        saved=local_elements * quantise.kept_width(tape),
        again=again,
        quantised=inputs * out if quantise.of(tape) else 0.0,
    )
    late = quantise.late_transpose(tape, True, source)
    twice = runtime.save_original_input
    calls = tape.outer is not False
    ahead, ungathered = local_elements if quantise.local(tape) else t * inputs, not (tape.sp and calls) or quantise.local(tape)
    narrow = quantise.operand(tape, name, Phase.FORWARD, ahead, 1 if late or twice else 2, source, tape.sp)
    unit.forward += quantise.weight(tape, name, Phase.FORWARD, inputs * out) + (narrow if ungathered else [])
    if tape.sp and calls:
        wire, before = t * inputs * quantise.wire_width(tape), len(unit.forward)
        unit.forward += _gather_then(tape, name, Phase.FORWARD, wire, t, out, inputs, [] if ungathered else narrow, before)
    else:
        unit.forward.append(tape.gemm(name, Phase.FORWARD, t, out, inputs))
    if bias and not runtime.fused_activation:
        unit.forward.append(tape.elementwise(f"{name} bias", Phase.FORWARD, t * out, 1, 1))

    unit.cut = "rows"
    b = unit.backward
    b += quantise.weight(tape, name, Phase.DGRAD, inputs * out)
    b += quantise.operand(tape, f"{name} grad", Phase.DGRAD, t * out)
    if twice and ungathered:
        b += quantise.quantise_again(tape, name, ahead, source, tape.sp)
    if bias:
        b.append(tape.elementwise(f"{name} bias grad", Phase.WGRAD, t * out, 1, 0, kind=Kind.REDUCE))
    overlap = runtime.overlap_tp_dgrad and tp > 1
    waits: tuple[int, ...] = ()
    if tape.sp and not tape.outer and not runtime.keeps_gathered:
        wire = t * inputs * quantise.wire_width(tape)
        b.append(
            tape.comm(
                f"{name} input gather", Phase.WGRAD, Comm.ALL_GATHER, Axis.TP, wire, Stream.TP, blocking=not overlap, waits=(-1,)
            )
        )
        waits = (len(b) - 1,)
    b.append(tape.gemm(f"{name} dgrad", Phase.DGRAD, t, inputs, out, adds=bool(tape.outer)))
    if tp > 1 and calls:
        call = Comm.REDUCE_SCATTER if tape.sp else Comm.ALL_REDUCE
        b.append(
            tape.comm(
                f"{name} dgrad {'scatter' if tape.sp else 'reduce'}",
                Phase.DGRAD,
                call,
                Axis.TP,
                size,
                Stream.TP,
                blocking=not overlap,
                waits=(len(b) - 1,),
            )
        )
    copies = [quantise.transpose(tape, name, Phase.WGRAD, t * inputs)] if late else []
    copies += quantise.quantise_again(tape, name, ahead, source) if twice and not ungathered else []
    product = tape.gemm(f"{name} wgrad", Phase.WGRAD, out, inputs, t)
    b += _waiting([*copies, product], waits if overlap else ())
    b += _accumulate(tape, name, inputs * out)
    quantise.keep_weight(tape, unit)
    tape.add(unit)


def row(
    tape: Tape,
    name: str,
    inputs: int,
    outputs: int,
    save_input: bool = True,
    again: float = 0.0,
    source: Source = "",
    role: Role = Role.NONE,
) -> None:
    """(tokens, inputs / tp) -> (tokens, outputs), summed over tp. The caller adds the bias with the residual.

    Without `save_input` the unit before keeps the 16-bit input, and backward quantises it again for the weight gradient
    (Megatron-Core's set_save_original_input). Delayed scaling has one scale per pass, so a quantised copy is kept as well.
    """
    tp, t = tape.tp, tape.tokens
    cut = inputs // tp
    size = t * outputs * tape.width
    low, runtime, calls = quantise.of(tape) is not None, tape.job.runtime, tape.outer is not False
    twice = runtime.save_original_input or not save_input and runtime.recipe != "delayed"
    kept = quantise.kept_width(tape) if save_input or low and not twice else 0.0
    unit = Unit(name, role, parameters=cut * outputs, saved=t * cut * kept, again=again, quantised=cut * outputs if low else 0.0)
    late = quantise.late_transpose(tape, False, source)
    unit.forward += quantise.weight(tape, name, Phase.FORWARD, cut * outputs)
    unit.forward += quantise.operand(tape, name, Phase.FORWARD, t * cut, 1 if late or twice else 2, source)
    if tape.sp and runtime.overlap_tp and calls:
        unit.forward += _then_scatter(tape, name, Phase.FORWARD, size, t, outputs, cut, len(unit.forward))
    else:
        unit.forward.append(tape.gemm(name, Phase.FORWARD, t, outputs, cut, adds=bool(tape.outer)))
        if tp > 1 and calls:
            call = Comm.REDUCE_SCATTER if tape.sp else Comm.ALL_REDUCE
            unit.forward.append(
                tape.comm(f"{name} {'scatter' if tape.sp else 'reduce'}", Phase.FORWARD, call, Axis.TP, size, Stream.TP)
            )
    unit.cut = "columns"
    b = unit.backward
    b += quantise.weight(tape, name, Phase.DGRAD, cut * outputs)
    behind = quantise.late_transpose(tape, True)  # the gradient's
    ungathered = not (tape.sp and calls) or quantise.local(tape)
    elements = (tape.local_tokens if quantise.local(tape) else t) * outputs
    narrow = quantise.operand(tape, f"{name} grad", Phase.DGRAD, elements, 1 if behind else 2, "", tape.sp)
    b += narrow if ungathered else []
    if tape.sp and calls:
        wire = t * outputs * quantise.wire_width(tape, both=True)
        b += _gather_then(tape, f"{name} dgrad", Phase.DGRAD, wire, t, cut, outputs, [] if ungathered else narrow, len(b))
    else:
        b.append(tape.gemm(f"{name} dgrad", Phase.DGRAD, t, cut, outputs))
    if twice:
        b += quantise.quantise_again(tape, name, t * cut, source)
    if late:
        b.append(quantise.transpose(tape, name, Phase.WGRAD, t * cut))
    if behind:
        b.append(quantise.transpose(tape, f"{name} grad", Phase.WGRAD, t * outputs))
    b.append(tape.gemm(f"{name} wgrad", Phase.WGRAD, outputs, cut, t))
    b += _accumulate(tape, name, cut * outputs)
    quantise.keep_weight(tape, unit)
    tape.add(unit)


def _waiting(rows: list[Op], waits: tuple[int, ...]) -> list[Op]:
    """`rows`, of which the first waits for the rows `waits` of its unit; the others run after it."""
    return [rows[0]._replace(waits=waits), *rows[1:]]


def _gather_then(
    tape: Tape, name: str, phase: Phase, size: float, m: int, n: int, k: int, between: list[Op], before: int
) -> list[Op]:
    """All-gather of the GEMM's input, `between`, then the GEMM; in overlapping chunks if the runtime splits them.

    The first chunk starts with the rank's own rows, which need no transfer (Transformer Engine's ring exchange). The call of each
    chunk carries the rows that it still lacks. `before`: number of rows of the unit that come first.
    """
    runtime = tape.job.runtime
    if not runtime.overlap_tp:
        gather = tape.comm(f"{name} gather", phase, Comm.ALL_GATHER, Axis.TP, size, Stream.TP)
        return [gather, *between, tape.gemm(name, phase, m, n, k)]
    chunks, own = runtime.tp_chunks, 1.0 / tape.tp
    sent = [max(0.0, (piece / chunks - own) / (1.0 - own)) for piece in range(chunks + 1)]
    rows: list[Op] = []
    waits: list[tuple[int, ...]] = []
    for before_chunk, after_chunk in pairwise(sent):
        if after_chunk > before_chunk:
            first, part = () if rows else (-1,), size * (after_chunk - before_chunk)
            rows.append(tape.comm(f"{name} gather", phase, Comm.ALL_GATHER, Axis.TP, part, Stream.TP, blocking=False, waits=first))
        waits.append((before + len(rows) - 1,) if rows else ())
    chunk = [op._replace(bytes=op.bytes / chunks) for op in between]
    for place, awaited in enumerate(waits):
        product = tape.gemm(name, phase, m // chunks, n, k)._replace(further=place > 0)
        rows += _waiting([*chunk, product], awaited)
    return rows


def _then_scatter(tape: Tape, name: str, phase: Phase, size: float, m: int, n: int, k: int, before: int) -> list[Op]:
    """The GEMM in chunks, each reduce-scattered while the next one runs; the unit waits for the last one. `before` as above."""
    rows: list[Op] = []
    chunks = tape.job.runtime.tp_chunks
    for piece in range(chunks):
        rows.append(tape.gemm(name, phase, m // chunks, n, k, adds=bool(tape.outer))._replace(further=piece > 0))
        rows.append(
            tape.comm(
                f"{name} scatter",
                phase,
                Comm.REDUCE_SCATTER,
                Axis.TP,
                size / chunks,
                Stream.TP,
                blocking=piece == chunks - 1,
                waits=(before + len(rows) - 1,),
            )
        )
    return rows


def _accumulate(tape: Tape, name: str, weights: float) -> list[Op]:
    """Adds a weight gradient to the accumulated one, if the GEMM does not do so itself."""
    runtime = tape.job.runtime
    if runtime.fused_wgrad:
        return []
    moved = weights * (tape.width + 2 * tape.grad_width)
    return [Op(f"{name} grad accumulate", Kind.ELEMENTWISE, Phase.WGRAD, tape.module, tape.activation_dtype, bytes=moved)]


def replicated_linear(
    tape: Tape, name: str, inputs: int, outputs: int, dtype: int | None = None, source: Source = "", role: Role = Role.NONE
) -> None:
    """(local tokens, inputs) -> (local tokens, outputs): weights are replicated over tp, without communication.

    With an explicit `dtype` the product is not in low precision.
    """
    side = tape if dtype is None else replace(tape, wide=True)
    t, twice = tape.local_tokens, tape.job.runtime.save_original_input
    late = quantise.late_transpose(side, False, source)
    unit = Unit(
        name,
        role,
        parameters=inputs * outputs,
        replicated=inputs * outputs * tape.sp,
        saved=t * inputs * quantise.kept_width(side),
        quantised=inputs * outputs if quantise.of(side) else 0.0,
    )
    unit.forward += quantise.weight(side, name, Phase.FORWARD, inputs * outputs)
    unit.forward += quantise.operand(side, name, Phase.FORWARD, t * inputs, 1 if late or twice else 2, source)
    unit.forward.append(tape.gemm(name, Phase.FORWARD, t, outputs, inputs, dtype=dtype))
    b = unit.backward
    b += quantise.weight(side, name, Phase.DGRAD, inputs * outputs)
    b += quantise.operand(side, f"{name} grad", Phase.DGRAD, t * outputs)
    b.append(tape.gemm(f"{name} dgrad", Phase.DGRAD, t, inputs, outputs, dtype=dtype))
    if twice:
        b += quantise.quantise_again(side, name, t * inputs, source)
    if late:
        b.append(quantise.transpose(side, name, Phase.WGRAD, t * inputs))
    b.append(tape.gemm(f"{name} wgrad", Phase.WGRAD, outputs, inputs, t, dtype=dtype))
    b += _accumulate(tape, name, inputs * outputs)
    quantise.keep_weight(side, unit)
    tape.add(unit)


def grouped_linear(tape: Tape, name: str, experts: int, m: int, inputs: int, outputs: int, role: Role = Role.NONE) -> None:
    """(m, inputs) -> (m, outputs) for each local expert: grouped GEMMs forward and backward."""
    elements, pieces, twice = experts * m * inputs, quantise.pieces(tape, experts), tape.job.runtime.save_original_input
    weights = float(experts * inputs * outputs)
    unit = Unit(
        name,
        role,
        saved=elements * quantise.kept_width(tape),
        parameters=weights,
        expert_parameters=weights,
        quantised=weights if quantise.of(tape) else 0.0,
    )
    unit.forward += quantise.weight(tape, name, Phase.FORWARD, weights)
    unit.forward += quantise.operand(tape, name, Phase.FORWARD, elements, 1 if twice else 2, pieces=pieces)
    unit.forward.append(tape.grouped_gemm(name, Phase.FORWARD, experts, m, outputs, inputs))
    b = unit.backward
    b += quantise.weight(tape, name, Phase.DGRAD, weights)
    b += quantise.operand(tape, f"{name} grad", Phase.DGRAD, experts * m * outputs, pieces=pieces)
    b.append(tape.grouped_gemm(f"{name} dgrad", Phase.DGRAD, experts, m, inputs, outputs))
    if twice:
        b += quantise.operand(tape, f"{name} again", Phase.WGRAD, elements, 1, pieces=pieces)
    b.append(tape.grouped_gemm(f"{name} wgrad", Phase.WGRAD, experts, outputs, inputs, m))
    b += _accumulate(tape, name, weights)
    quantise.keep_weight(tape, unit)
    if tape.job.runtime.moe_weights_by_index:
        _index_weights(tape, unit, name, experts, weights)
    tape.add(unit)


def _index_weights(tape: Tape, unit: Unit, name: str, experts: int, weights: float) -> None:
    """What indexing one tensor of all experts' weights with the expert's number costs: a copy forward, which the product keeps for
    its input's gradient; backward, for each expert, zeros of the whole tensor, its part put there, and a sum over the experts so
    far, in place (torch `index_backward`: new_zeros and index_put_; autograd's InputBuffer). transformers 4,
    models/gpt_oss/modeling_gpt_oss.py, GptOssExperts.forward while training."""
    unit.tensors = (*(unit.tensors or (unit.saved,)), tape.width * weights)
    unit.saved = sum(unit.tensors)
    unit.forward.insert(
        0, Op(f"{name} index", Kind.COPY, Phase.FORWARD, tape.module, bytes=2.0 * tape.width * weights, launches=experts)
    )
    moved = tape.width * weights * (experts + 3.0 * (experts - 1) + 2.0)
    unit.backward.append(Op(f"{name} zeros and sum", Kind.COPY, Phase.WGRAD, tape.module, bytes=moved, launches=3 * experts - 1))
