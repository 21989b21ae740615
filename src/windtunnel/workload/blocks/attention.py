"""Self-attention: projections, positions, the core (fused or not), output projection.

Saved bytes follow Korthikanti et al. 2022 (arXiv 2205.05198) for the unfused core and the flash kernels' saved tensors otherwise.
"""

from __future__ import annotations

from windtunnel.workload.blocks.linear import column, row
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit


def attention(tape: Tape) -> None:
    """Appends the attention sub-module: (tokens, hidden) -> (tokens, hidden), heads cut over tp."""
    model, plan, runtime = tape.job.model, tape.job.plan, tape.job.runtime
    heads = model.heads // tape.tp
    groups = max(1, model.groups // tape.tp)
    dim = model.dim_per_head
    width = (heads * (2 if model.attention_gate else 1) + 2 * groups) * dim
    # the norm keeps the layer's input; the projection keeps the norm's output
    column(tape, "qkv", model.hidden, width * tape.tp, model.attention_bias, again=groups / (heads + 2 * groups),
           source="norm")
    tape.units[-1].gives["layernorm"] = tape.units[-1].saved
    if model.qk_norm:
        elements = tape.tokens * (heads + groups) * dim
        tape.pointwise(
            "qk norm",
            elements,
            (1, 1),
            (2, 1),
            saved=elements * tape.width,
            launches=(2, 4),
            kind=Kind.NORM,
            m=tape.tokens * (heads + groups),
            n=dim,
            parameters=2 * dim,
        )
    if model.position == "rope":
        elements = tape.tokens * (heads + groups) * dim
        if runtime.fused_rope:
            tape.pointwise("rope", elements, (1, 1), (1, 1), launches=(2, 2))
        else:
            # neg, cat, two multiplies and an add, each a kernel over queries and over keys
            tape.pointwise("rope", elements, (6, 5), (6, 5), launches=(10, 10))
    if plan.cp > 1:
        gather_keys(tape, groups * dim)
    if runtime.attention == "flash":
        flash(tape, heads, groups, dim, dim)
    else:
        unfused(tape, heads, dim, dim)
    if model.attention_gate:
        elements = tape.tokens * heads * dim
        tape.pointwise("attention gate", elements, (2, 1), (3, 2), saved=elements * tape.width)
    row(tape, "attention out", model.q_heads_dim, model.hidden, save_input=runtime.attention != "flash", again=1.0)


def gather_keys(tape: Tape, kv_width: float) -> None:
    """Context parallelism by all-gather of keys and values (Llama 3 §3.3.2), `kv_width` their mean; gradients reduce-scatter
    back."""
    size = 2.0 * tape.tokens * tape.job.plan.cp * kv_width * tape.width
    unit = Unit("kv gather", core=True)
    unit.forward.append(tape.comm("kv gather", Phase.FORWARD, Comm.ALL_GATHER, Axis.CP, size, Stream.CP))
    unit.backward.append(tape.comm("kv grad scatter", Phase.DGRAD, Comm.REDUCE_SCATTER, Axis.CP, size, Stream.CP))
    tape.add(unit)


def visible(seq: int, window: int | None, causal: bool = True) -> float:
    """Mean number of keys that a query sees: (seq + 1) / 2 if causal, fewer under a sliding window; else all, or the window's."""
    if not causal:
        return float(min(seq, window or seq))
    if window is None or window >= seq:
        return (seq + 1) / 2
    return window - window * (window - 1) / (2 * seq)


def flash(tape: Tape, heads: int, groups: int, dim: int, value: int) -> None:
    """Flash attention (Dao 2022, 2023): one kernel forward, one backward that recomputes the scores (5 products for 2).

    `dim` is the width of a head's query and key, `value` of its value; the kernel's head size is their mean, which gives its FLOPs.
    """
    plan = tape.job.plan
    keys = plan.seq
    seen = visible(keys, tape.window, tape.job.model.causal)
    batch = plan.micro_batch * heads
    forward = 2.0 * batch * tape.seq * seen * (dim + value)
    tokens, all_keys = tape.tokens, plan.micro_batch * keys
    moved = tape.width * (tokens * heads * (dim + value) + all_keys * groups * (dim + value))
    saved = tape.width * (tokens * heads * dim + tokens * groups * (dim + value) + tokens * heads * value) + 4 * tokens * heads
    pieces = (tokens * heads * dim, tokens * groups * (dim + value), tokens * heads * value)
    unit = Unit("attention core", core=True, saved=saved, tensors=(*(tape.width * float(n) for n in pieces), 4.0 * tokens * heads))
    core = Op("attention", Kind.ATTENTION, Phase.FORWARD, tape.module, tape.activation_dtype, batch, tape.seq, keys,
              (dim + value) // 2, max(1, heads // groups), forward, moved)
    unit.forward.append(core)
    unit.backward.append(core._replace(name="attention grad", kind=Kind.ATTENTION_BACKWARD, phase=Phase.DGRAD, flops=2.5 * forward,
                                       bytes=2.5 * moved, launches=3))
    tape.add(unit)


def unfused(tape: Tape, heads: int, dim: int, value: int) -> None:
    """Scores, scale + mask + softmax, dropout and context as separate kernels over the full (not causal) score matrix."""
    plan, runtime, model = tape.job.plan, tape.job.runtime, tape.job.model
    batch, seq, keys = plan.micro_batch * heads, tape.seq, plan.seq
    score = batch * seq * keys
    act = tape.activation_dtype
    q, v = tape.tokens * heads * dim, tape.tokens * heads * value
    w = tape.width

    def product(name: str, m: int, n: int, k: int, saved: float, gradients: tuple[tuple[str, int, int, int], ...]) -> None:
        unit = Unit(name, core=True, saved=saved)
        unit.forward.append(tape.gemm(name, Phase.FORWARD, m, n, k, batch, act))
        unit.backward += [tape.gemm(f"{name} {g[0]}", Phase.DGRAD, g[1], g[2], g[3], batch, act) for g in gradients]
        tape.add(unit)

    product("attention scores", seq, keys, dim, 2 * q * w, (("query grad", seq, dim, keys), ("key grad", keys, dim, seq)))
    rows = batch * seq
    if runtime.attention == "fused_softmax":
        tape.pointwise("softmax", score, (1, 1), (2, 1), saved=score * w, core=True, kind=Kind.SOFTMAX, m=rows, n=keys)
    else:
        tape.pointwise(
            "softmax", score, (5, 4), (5, 3), saved=2 * score * w, launches=(4, 4), core=True, kind=Kind.SOFTMAX, m=rows, n=keys
        )
    if model.dropout:
        tape.pointwise("attention dropout", score, (1, 1.5), (1.5, 1), saved=score * (w + 1), core=True)
    gradients = (("probability grad", seq, keys, value), ("value grad", keys, value, seq))
    product("attention context", seq, value, keys, v * w, gradients)
    tape.pointwise("context transpose", v, (1, 1), (1, 1))
