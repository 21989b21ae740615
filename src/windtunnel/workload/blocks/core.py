"""The attention core on one GPU, fused or not: queries, keys and values in, context out.

Saved bytes follow Korthikanti et al. 2022 (arXiv 2205.05198) for the unfused core and the flash kernels' saved tensors otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.workload.blocks import quantise
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import DTYPES, Kind, Op, Phase
from windtunnel.workload.tape import Tape, Unit, join_rows


class CoreHeads(NamedTuple):
    """Heads on one GPU: `queries` query heads over `groups` key/value heads; `dim` is the width of a query and key, `value` the
    width of a value."""

    queries: int
    groups: int
    dim: int
    value: int

    def share_of_heads(self, ranks: int) -> CoreHeads:
        """A share of the heads."""
        return CoreHeads(self.queries // ranks, max(1, self.groups // ranks), self.dim, self.value)


def visible(seq: int, window: int | None, causal: bool = True) -> float:
    """Mean number of keys that a query attends to. Causal: (seq + 1) / 2, fewer under a sliding window. Not causal: all keys, or
    those of the window."""
    if not causal:
        return float(min(seq, window or seq))
    if window is None or window >= seq:
        return (seq + 1) / 2
    return window - window * (window - 1) / (2 * seq)


def kernel(tape: Tape, heads: CoreHeads, sequences: int, queries: int, keys: int, seen: float) -> tuple[Op, Op]:
    """The fused forward and backward kernels over `queries` x `keys` tokens of each of `sequences`; a query attends to `seen` keys
    on average. Backward computes the scores again: 5 products instead of 2 (Dao 2022, 2023).

    The kernel's head size is the mean of key and value width, which gives the right FLOPs. In 8 bits the backward kernel skips no
    block that lies beyond a window: cuDNN 9.22 takes as long for a window of 128 as for none (NVIDIA/cudnn-frontend's benchmark).
    """
    batch, wide = sequences * heads.queries, heads.dim + heads.value
    forward = 2.0 * batch * queries * seen * wide
    moved = tape.width * (sequences * queries * heads.queries * wide + sequences * keys * heads.groups * wide)
    narrow = quantise.attention_precision(tape)
    behind = 1.0 if narrow is None or tape.window is None else max(1.0, min(keys, (keys + 1) / 2) / seen)
    core = Op(
        "attention",
        Kind.ATTENTION,
        Phase.FORWARD,
        tape.module,
        tape.activation_dtype if narrow is None else DTYPES.index(narrow),
        batch,
        queries,
        keys,
        wide // 2,
        max(1, heads.queries // heads.groups),
        forward,
        moved,
    )
    return core, core._replace(
        name="attention grad",
        kind=Kind.ATTENTION_BACKWARD,
        phase=Phase.DGRAD,
        flops=2.5 * forward * behind,
        bytes=2.5 * moved,
        launches=3,
    )


def fused_unit(tape: Tape, heads: CoreHeads, rows: tuple[list[Op], list[Op]]) -> Unit:
    """A unit of `rows`, forward and backward, behind the kernels that quantise what they read in 8 bits. It keeps the tensors that
    a fused core saves for this GPU's tokens: query, key, value, context and log-sum-exp."""
    tokens, wide = tape.tokens, heads.dim + heads.value
    groups = heads.queries if tape.job.runtime.repeats_keys else heads.groups
    query, key, context = tokens * heads.queries * heads.dim, tokens * groups * wide, tokens * heads.queries * heads.value
    kept = tape.width
    if quantise.attention_precision(tape) is not None:
        scaling = quantise.attention_recipe(tape)
        kept = scaling.width * (2 if scaling.blocks else 1)
    tensors = (kept * float(query), kept * float(key), tape.width * float(context), 4.0 * tokens * heads.queries)
    inputs = quantise.attention_inputs(tape, "attention inputs", Phase.FORWARD, float(query + key), 3)
    gradient = quantise.attention_inputs(tape, "attention context grad", Phase.DGRAD, float(context), 1)
    unit = Unit("attention core", Role.ATTENTION_CORE, core=True, saved=sum(tensors), tensors=tensors)
    unit.forward, unit.backward = join_rows(inputs, rows[0]), join_rows(gradient, rows[1])
    return unit


def fused_attention(tape: Tape, heads: CoreHeads) -> tuple[Op, Op]:
    """The fused kernels over whole sequences, or over each of the documents in them."""
    plan = tape.job.plan
    seq = plan.document or plan.seq
    return kernel(tape, heads, plan.micro_batch * (plan.seq // seq), seq, seq, visible(seq, tape.window, tape.job.model.causal))


def flash(tape: Tape, heads: CoreHeads) -> None:
    """Fused attention over sequences that are not split over GPUs."""
    forward, backward = fused_attention(tape, heads)
    tape.add(fused_unit(tape, heads, ([forward], [backward])))


def unfused_attention(tape: Tape, heads: CoreHeads, queries: int) -> None:
    """Scores, scale + mask + softmax, dropout and context as separate kernels over the full (not causal) score matrix of `queries`
    tokens against all keys."""
    plan, model = tape.job.plan, tape.job.model
    dim, value = heads.dim, heads.value
    batch, seq, keys = plan.micro_batch * heads.queries, queries, plan.seq
    score = batch * seq * keys
    act = tape.activation_dtype
    q, v = batch * seq * dim, batch * seq * value
    w = tape.width

    def product(name: str, m: int, n: int, k: int, saved: float, gradients: tuple[tuple[str, int, int, int], ...]) -> None:
        unit = Unit(name, core=True, saved=saved)
        unit.forward.append(tape.gemm(name, Phase.FORWARD, m, n, k, batch, act))
        unit.backward += [tape.gemm(f"{name} {g[0]}", Phase.DGRAD, g[1], g[2], g[3], batch, act) for g in gradients]
        tape.add(unit)

    product("attention scores", seq, keys, dim, 2 * q * w, (("query grad", seq, dim, keys), ("key grad", keys, dim, seq)))
    if model.position == "alibi":  # the biases are written out for every score, and the product adds to them (baddbmm)
        scores = tape.units[-1].forward
        scores[0] = scores[0]._replace(bytes=scores[0].bytes + score * w)
        scores.insert(0, tape.elementwise("alibi biases", Phase.FORWARD, score, 0, 1, kind=Kind.COPY))
    rows = batch * seq
    if tape.job.kernel_runtime.attention == "fused_softmax":
        tape.pointwise(
            "softmax", score, (1, 1), (2, 1), saved=score * w, core=True, kind=Kind.SOFTMAX, m=rows, n=keys, role=Role.SOFTMAX
        )
    else:
        tape.pointwise(
            "softmax",
            score,
            (5, 4),
            (5, 3),
            saved=2 * score * w,
            launches=(4, 4),
            core=True,
            kind=Kind.SOFTMAX,
            m=rows,
            n=keys,
            role=Role.SOFTMAX,
        )
    if model.dropout:
        tape.pointwise(
            "attention dropout", score, (1, 1.5), (1.5, 1), saved=score * (w + 1), core=True, role=Role.ATTENTION_DROPOUT
        )
    gradients = (("probability grad", seq, keys, value), ("value grad", keys, value, seq))
    product("attention context", seq, value, keys, v * w, gradients)
    tape.pointwise("context transpose", v, (1, 1), (1, 1))
