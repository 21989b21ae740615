"""Logits and cross-entropy, in the variants of the frameworks. They differ in how many logits are in memory at once.

`vocab_parallel`: logits of all tokens, sharded over tp, with three small all-reduces (Megatron-LM; torchtitan's loss parallel).
`gathered`: logits gathered over tp before the loss (torchtitan with disable_loss_parallel). `chunked`: a slice of the tokens at a
time, with all three products in forward (Liger-Kernel's fused linear cross-entropy, arXiv:2410.10989). `linear`: one kernel that
multiplies and reduces in blocks, and multiplies again in backward (Cut Cross-Entropy, arXiv:2411.09009).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from windtunnel.workload.blocks import quantise
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import DTYPES, Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit

IN_BLOCKS = "logits in blocks"
"""Label of a product whose result never reaches memory."""


def vocab_parallel(tape: Tape, own_weights: bool) -> None:
    """Logits of this rank's classes; maximum, target and sum over tp."""
    classes = tape.job.padded_vocab // tape.tp
    _logits(tape, own_weights, classes)
    _entropy(tape, tape.tokens, classes)
    loss = tape.units[-1]
    if tape.tp > 1:
        for part in ("maximum", "target", "sum"):
            loss.forward.append(tape.comm(f"loss {part}", Phase.FORWARD, Comm.ALL_REDUCE, Axis.TP, 4.0 * tape.tokens, Stream.TP))


def gathered_loss(tape: Tape, own_weights: bool) -> None:
    """Logits of this rank's classes, gathered: every rank computes the whole loss and takes its part of the gradient."""
    classes, vocabulary = tape.job.padded_vocab // tape.tp, tape.job.padded_vocab
    _logits(tape, own_weights, classes)
    unit = tape.units[-1]
    size = float(tape.tokens * vocabulary) * tape.width
    unit.saved += size - tape.tokens * classes * tape.width
    unit.tensors = (*unit.tensors[:-1], size)
    unit.forward.append(tape.comm("logits of all classes", Phase.FORWARD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP))
    _entropy(tape, tape.tokens, vocabulary)


def chunked_loss(tape: Tape, own_weights: bool) -> None:
    """Logits, loss with its gradient in place, and gradients of input and weights, for one slice of the tokens at a time."""
    t, h, classes = tape.tokens, tape.job.model.hidden, tape.job.padded_vocab
    slice_, act = chunk(t, h, classes), tape.activation_dtype
    times = math.ceil(t / slice_)
    unit = Unit("loss in chunks", parameters=_parameters(tape, own_weights, classes))
    weights = 0.0 if tape.frozen else float(classes * h)
    unit.tensors = tuple(size * tape.width for size in (float(t * h), weights) if size)  # forward leaves both gradients
    unit.saved = sum(unit.tensors)

    def product(name: str, m: int, n: int, k: int) -> None:
        op = tape.gemm(f"logits {name}", Phase.FORWARD, m, n, k, dtype=act)
        unit.forward.append(op._replace(flops=op.flops * times, bytes=op.bytes * times, launches=times))

    product("of a chunk", slice_, classes, h)
    unit.forward.append(tape.elementwise("loss", Phase.FORWARD, t * classes, 2.0, 1.0, times, Kind.CROSS_ENTROPY, slice_, classes))
    product("dgrad", slice_, h, classes)
    if weights:
        product("wgrad", classes, h, slice_)
    unit.backward.append(tape.elementwise("loss scale", Phase.DGRAD, t * h + weights, 1, 1, 2 if weights else 1))
    tape.units.append(unit)  # appended unchanged: no weight gradient remains to be delayed
    if tape.frozen:
        unit.frozen, unit.parameters = unit.parameters, 0.0


def linear(tape: Tape, own_weights: bool) -> None:
    """Product and reduction in one kernel: forward keeps one number per token, backward computes the logits again in blocks."""
    t, h, classes, act = tape.tokens, tape.job.model.hidden, tape.job.padded_vocab // tape.tp, tape.activation_dtype
    kept = (tape.local_tokens * h * tape.width, 4.0 * t)
    unit = Unit(IN_BLOCKS, saved=sum(kept), tensors=kept, parameters=_parameters(tape, own_weights, classes))
    blocks = tape.gemm(IN_BLOCKS, Phase.FORWARD, t, classes, h, dtype=act)
    blocks = blocks._replace(bytes=tape.width * (t * h + classes * h), role=Role.LOGITS_IN_BLOCKS)
    unit.forward += [*_gather(tape), blocks, tape.elementwise("loss", Phase.FORWARD, t, 2, 2, 1, Kind.CROSS_ENTROPY, t, 1)]
    if tape.tp > 1:
        for part in ("maximum", "target", "sum"):
            unit.forward.append(tape.comm(f"loss {part}", Phase.FORWARD, Comm.ALL_REDUCE, Axis.TP, 4.0 * t, Stream.TP))
    unit.backward += [op._replace(phase=Phase.RECOMPUTE) for op in (*_gather(tape), blocks)]
    unit.backward += _backward(tape, classes, len(unit.backward), gathered=True)
    tape.add(unit)
    if tape.frozen:  # the log-sum is needed in any case
        unit.saved, unit.tensors = kept[1], kept[1:]


LOSSES: dict[str, Callable[[Tape, bool], None]] = {
    "vocab_parallel": vocab_parallel,
    "gathered": gathered_loss,
    "chunked": chunked_loss,
    "linear": linear,
}
"""By `Runtime.cross_entropy`."""


def chunk(tokens: int, hidden: int, classes: int) -> int:
    """Tokens of a slice in Liger-Kernel: as many as give logits about as large as the inputs, rounded up to a power of two."""
    return min(tokens, 1 << (math.ceil(tokens / math.ceil(classes / hidden)) - 1).bit_length())


def _parameters(tape: Tape, own_weights: bool, classes: int) -> float:
    model, job = tape.job.model, tape.job
    return 0.0 if model.tied_embeddings and job.ends_meet or not own_weights else float(classes * model.hidden)


def _gather(tape: Tape) -> list[Op]:
    if not tape.sp:
        return []
    size = tape.tokens * tape.job.model.hidden * tape.width
    return [tape.comm("logits gather", Phase.FORWARD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP)]


def _backward(tape: Tape, classes: int, before: int = 0, gathered: bool = False) -> list[Op]:
    """Both gradients of the product, after `before` rows of the unit. Ranks that keep their own tokens' input gather it again for
    that of the weights, unless it is `gathered` already or the framework keeps it (Megatron-Core's tensor_parallel/layers.py,
    LinearWithGradAccumulationAndAsyncCommunication)."""
    t, h, dtype = tape.tokens, tape.job.model.hidden, _dtype(tape)
    size, blocking, waits = t * h * tape.width, not tape.job.runtime.overlap_tp_dgrad, tuple[int, ...]()
    rows = quantise.operand(tape, "logits grad", Phase.DGRAD, float(t * classes)) if _is_narrow(tape) else []
    if tape.sp and not gathered and not tape.job.runtime.keeps_gathered:
        rows.append(tape.comm("logits input gather", Phase.WGRAD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP, blocking, (-1,)))
        waits = () if blocking else (before + len(rows) - 1,)
    rows.append(tape.gemm("logits dgrad", Phase.DGRAD, t, h, classes, dtype=dtype))
    if tape.tp > 1:
        call = Comm.REDUCE_SCATTER if tape.sp else Comm.ALL_REDUCE
        rows.append(
            tape.comm("logits dgrad reduce", Phase.DGRAD, call, Axis.TP, size, Stream.TP, blocking, (before + len(rows) - 1,))
        )
    return [*rows, tape.gemm("logits wgrad", Phase.WGRAD, classes, h, t, dtype=dtype, waits=waits)]


def _is_narrow(tape: Tape) -> bool:
    """Whether the output layer multiplies in the low precision."""
    return tape.job.runtime.fp8_output_layer and quantise.recipe(tape.job.runtime) is not None


def _dtype(tape: Tape) -> int:
    return DTYPES.index(tape.job.runtime.precision) if _is_narrow(tape) else tape.activation_dtype


def _logits(tape: Tape, own_weights: bool, classes: int) -> None:
    t, h = tape.tokens, tape.job.model.hidden
    kept: tuple[float, ...] = (tape.local_tokens * h * tape.width,)
    if tape.job.runtime.keeps_logits:
        kept = (*kept, t * classes * tape.width)
    unit = Unit("logits", saved=sum(kept), tensors=kept, parameters=_parameters(tape, own_weights, classes))
    unit.forward += _gather(tape)
    if _is_narrow(tape):
        unit.quantised = unit.parameters
        unit.forward += quantise.operand(tape, "logits", Phase.FORWARD, float(t * h))
    unit.forward.append(tape.gemm("logits", Phase.FORWARD, t, classes, h, dtype=_dtype(tape)))
    unit.backward += _backward(tape, classes)
    tape.add(unit)


def _entropy(tape: Tape, t: int, classes: int) -> None:
    """Logits may be cast to fp32 for the loss; unfused frameworks make several passes over them."""
    fused = tape.job.runtime.fused_cross_entropy
    loss = Unit("loss", saved=t * classes * 4.0 if tape.job.runtime.keeps_fp32_logits else 0.0)
    passes, launches = ((2.0, 2.0), 3) if fused else ((8.0, 6.0), 9)
    loss.forward.append(tape.elementwise("loss", Phase.FORWARD, t * classes, *passes, launches, Kind.CROSS_ENTROPY, t, classes))
    passes, launches = ((2.0, 1.0), 1) if fused else ((4.0, 3.0), 3)
    loss.backward.append(tape.elementwise("loss grad", Phase.DGRAD, t * classes, *passes, launches, Kind.CROSS_ENTROPY, t, classes))
    tape.add(loss)
