"""Linear layers with the collectives of tensor and sequence parallelism: column parallel (output cut), row parallel (input cut).

Megatron's pairs (Shoeybi 2019; Korthikanti 2022): without sequence parallelism the column layer all-reduces its input gradient and
the row layer its output. With it, the column layer gathers its input and reduce-scatters its input gradient; the row layer does the
reverse.
"""

from __future__ import annotations

from itertools import pairwise

from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit


def column(tape: Tape, name: str, inputs: int, outputs: int, bias: bool, again: float = 0.0) -> None:
    """(tokens, inputs) -> (tokens, outputs / tp)."""
    runtime, tp, t = tape.job.runtime, tape.tp, tape.tokens
    out = outputs // tp
    size = t * inputs * tape.width
    unit = Unit(name, parameters=inputs * out + (out if bias else 0), saved=tape.local_tokens * inputs * tape.width, again=again)
    unit.forward += _quantise(tape, name, Phase.FORWARD, tape.local_tokens * inputs)
    if tape.sp and tape.outer is not False:
        unit.forward += _gather_then(tape, name, Phase.FORWARD, size, t, out, inputs)
    else:
        unit.forward.append(tape.gemm(name, Phase.FORWARD, t, out, inputs))
    if bias and not runtime.fused_activation:
        unit.forward.append(tape.elementwise(f"{name} bias", Phase.FORWARD, t * out, 1, 1))

    b = unit.backward
    b += _quantise(tape, name, Phase.DGRAD, t * out)
    if bias:
        b.append(tape.elementwise(f"{name} bias grad", Phase.WGRAD, t * out, 1, 0, kind=Kind.REDUCE))
    overlap = runtime.overlap_tp_dgrad and tp > 1
    waits: tuple[int, ...] = ()
    if tape.sp and not tape.outer:
        b.append(
            tape.comm(
                f"{name} input gather", Phase.WGRAD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP, blocking=not overlap, waits=(-1,)
            )
        )
        waits = (len(b) - 1,)
    b.append(tape.gemm(f"{name} dgrad", Phase.DGRAD, t, inputs, out, adds=bool(tape.outer)))
    if tp > 1 and tape.outer is not False:
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
    b.append(tape.gemm(f"{name} wgrad", Phase.WGRAD, out, inputs, t, waits=waits if overlap else ()))
    b += _accumulate(tape, name, inputs * out)
    tape.add(unit)


def row(tape: Tape, name: str, inputs: int, outputs: int, save_input: bool = True, again: float = 0.0) -> None:
    """(tokens, inputs / tp) -> (tokens, outputs), summed over tp. The bias is added with the residual, by the caller."""
    tp, t = tape.tp, tape.tokens
    cut = inputs // tp
    size = t * outputs * tape.width
    unit = Unit(name, parameters=cut * outputs, saved=t * cut * tape.width * save_input, again=again)
    unit.forward += _quantise(tape, name, Phase.FORWARD, t * cut)
    if tape.sp and tape.job.runtime.overlap_tp and tape.outer is not False:
        unit.forward += _then_scatter(tape, name, Phase.FORWARD, size, t, outputs, cut)
    else:
        unit.forward.append(tape.gemm(name, Phase.FORWARD, t, outputs, cut, adds=bool(tape.outer)))
        if tp > 1 and tape.outer is not False:
            call = Comm.REDUCE_SCATTER if tape.sp else Comm.ALL_REDUCE
            unit.forward.append(
                tape.comm(f"{name} {'scatter' if tape.sp else 'reduce'}", Phase.FORWARD, call, Axis.TP, size, Stream.TP)
            )
    b = unit.backward
    b += _quantise(tape, name, Phase.DGRAD, tape.local_tokens * outputs)
    if tape.sp and tape.outer is not False:
        b += _gather_then(tape, f"{name} dgrad", Phase.DGRAD, size, t, cut, outputs)
    else:
        b.append(tape.gemm(f"{name} dgrad", Phase.DGRAD, t, cut, outputs))
    b.append(tape.gemm(f"{name} wgrad", Phase.WGRAD, outputs, cut, t))
    b += _accumulate(tape, name, cut * outputs)
    tape.add(unit)


def _gather_then(tape: Tape, name: str, phase: Phase, size: float, m: int, n: int, k: int) -> list[Op]:
    """All-gather of the GEMM's input, then the GEMM; in chunks that overlap where the runtime does so.

    The first chunk begins with the rank's own rows, which nobody has to send (Transformer Engine's ring exchange): a chunk's call
    carries what is still missing for it.
    """
    runtime = tape.job.runtime
    if not runtime.overlap_tp:
        return [tape.comm(f"{name} gather", phase, Comm.ALL_GATHER, Axis.TP, size, Stream.TP), tape.gemm(name, phase, m, n, k)]
    chunks, own = runtime.tp_chunks, 1.0 / tape.tp
    sent = [max(0.0, (piece / chunks - own) / (1.0 - own)) for piece in range(chunks + 1)]
    rows: list[Op] = []
    waits: list[tuple[int, ...]] = []
    for before, after in pairwise(sent):
        if after > before:
            first = (-1,) if not rows else ()
            part = size * (after - before)
            rows.append(tape.comm(f"{name} gather", phase, Comm.ALL_GATHER, Axis.TP, part, Stream.TP, blocking=False, waits=first))
        waits.append((len(rows) - 1,) if rows else ())
    return rows + [tape.gemm(name, phase, m // chunks, n, k, waits=awaited) for awaited in waits]


def _then_scatter(tape: Tape, name: str, phase: Phase, size: float, m: int, n: int, k: int) -> list[Op]:
    """The GEMM in chunks, each reduce-scattered while the next one runs; the last scatter is waited for."""
    rows: list[Op] = []
    chunks = tape.job.runtime.tp_chunks
    for piece in range(chunks):
        rows.append(tape.gemm(name, phase, m // chunks, n, k, adds=bool(tape.outer)))
        rows.append(
            tape.comm(
                f"{name} scatter",
                phase,
                Comm.REDUCE_SCATTER,
                Axis.TP,
                size / chunks,
                Stream.TP,
                blocking=piece == chunks - 1,
                waits=(len(rows) - 1,),
            )
        )
    return rows


def _quantise(tape: Tape, name: str, phase: Phase, elements: float) -> list[Op]:
    """Cast of an input to the 8- or 4-bit format: reads it once, writes it and its transpose."""
    if tape.linear_width >= tape.width:
        return []
    moved = elements * (tape.width + 2 * tape.linear_width)
    return [Op(f"{name} quantise", Kind.ELEMENTWISE, phase, tape.module, tape.activation_dtype, bytes=moved)]


def _accumulate(tape: Tape, name: str, weights: float) -> list[Op]:
    """Adding a weight gradient to the accumulated one, where the GEMM does not do it itself."""
    runtime = tape.job.runtime
    if runtime.fused_wgrad:
        return []
    moved = weights * (tape.width + 2 * tape.grad_width)
    return [Op(f"{name} grad accumulate", Kind.ELEMENTWISE, Phase.WGRAD, tape.module, tape.activation_dtype, bytes=moved)]


def own(tape: Tape, name: str, inputs: int, outputs: int, dtype: int | None = None) -> None:
    """(own tokens, inputs) -> (own tokens, outputs): weights whole on every tensor-parallel rank, no call.

    The input is kept as it was quantised for the product.
    """
    t = tape.local_tokens
    kept = tape.width if dtype is not None else min(tape.width, tape.linear_width)
    unit = Unit(name, parameters=inputs * outputs, saved=t * inputs * kept)
    unit.forward += _quantise(tape, name, Phase.FORWARD, t * inputs)
    unit.forward.append(tape.gemm(name, Phase.FORWARD, t, outputs, inputs, dtype=dtype))
    unit.backward += _quantise(tape, name, Phase.DGRAD, t * outputs)
    unit.backward.append(tape.gemm(f"{name} dgrad", Phase.DGRAD, t, inputs, outputs, dtype=dtype))
    unit.backward.append(tape.gemm(f"{name} wgrad", Phase.WGRAD, outputs, inputs, t, dtype=dtype))
    unit.backward += _accumulate(tape, name, inputs * outputs)
    tape.add(unit)


def grouped(tape: Tape, name: str, experts: int, m: int, inputs: int, outputs: int) -> None:
    """One (m, inputs) -> (m, outputs) for each of the local experts: grouped products forward and backward; kept as by `own`."""
    unit = Unit(name, saved=experts * m * inputs * min(tape.width, tape.linear_width))
    unit.parameters = unit.expert_parameters = float(experts * inputs * outputs)
    unit.forward += _quantise(tape, name, Phase.FORWARD, experts * m * inputs)
    unit.forward.append(tape.grouped(name, Phase.FORWARD, experts, m, outputs, inputs))
    unit.backward += _quantise(tape, name, Phase.DGRAD, experts * m * outputs)
    unit.backward.append(tape.grouped(f"{name} dgrad", Phase.DGRAD, experts, m, inputs, outputs))
    unit.backward.append(tape.grouped(f"{name} wgrad", Phase.WGRAD, experts, outputs, inputs, m))
    unit.backward += _accumulate(tape, name, unit.parameters)
    tape.add(unit)
