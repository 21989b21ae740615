"""Self-attention: projections, positions, the core (`core.py`; over context-parallel ranks `context.py`), output projection."""

from __future__ import annotations

from windtunnel.spec.model import Model
from windtunnel.workload.blocks.context import over_context
from windtunnel.workload.blocks.core import visible
from windtunnel.workload.blocks.indexer import index_key_bytes, index_matrices, index_pair_flops, index_score_flops, indexer
from windtunnel.workload.blocks.linear import column, row
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.mixer import LayerMixer, Mixing
from windtunnel.workload.ops import Kind
from windtunnel.workload.tape import Tape


def attention(tape: Tape, own: bool = True) -> None:
    """Appends the attention sub-module: (tokens, hidden) -> (tokens, hidden), heads cut over tp. Without `own` keys and values they
    are an earlier layer's."""
    model, runtime = tape.job.model, tape.job.runtime
    heads = model.heads // tape.tp
    groups = max(1, model.groups // tape.tp)
    dim = model.dim_per_head
    sides = (1 if model.global_shared_kv else 2) * own  # keys, and values where they have a projection of their own
    turned = heads + groups * own
    width = (heads * (2 if model.attention_gate else 1) + sides * groups) * dim
    # the norm keeps the layer's input; the projection keeps the norm's output
    again = groups * own / (heads + sides * groups)
    column(tape, "qkv", model.hidden, width * tape.tp, model.attention_bias, again=again, source="norm", role=Role.QKV)
    tape.units[-1].gives["layernorm"] = tape.units[-1].saved
    if runtime.split_copies:
        # forward: all three; keys beside values; both in the kernel's order. Backward: both; all three stacked, and in one piece
        keys_values, three = tape.tokens * sides * groups * dim, tape.tokens * width
        forward, backward = 1.0 + 2.0 * keys_values / three, 2.0 + keys_values / three
        tape.pointwise("qkv copies", three, (forward, forward), (backward, backward), launches=(3, 3), role=Role.QKV_COPIES)
    if model.qk_norm:
        elements, gains = tape.tokens * turned * dim, (1 + own) * dim
        tape.pointwise(
            "qk norm",
            elements,
            (1, 1),
            (2, 1),
            saved=elements * tape.width,
            launches=(1 + own, 2 * (1 + own)),
            kind=Kind.NORM,
            m=tape.tokens * turned,
            n=dim,
            parameters=gains,
            replicated=gains * (tape.tp > 1),  # Megatron-Core sums these without sequence parallelism too
        )
    if model.position == "rope":
        elements, sorts = tape.tokens * turned * dim, 1 + own
        if runtime.fused_rope:
            tape.pointwise("rope", elements, (1, 1), (1, 1), launches=(sorts, sorts), role=Role.ROPE)
        else:
            # neg, cat, two multiplies and an add, each a kernel over queries and over keys
            tape.pointwise("rope", elements, (6, 5), (6, 5), launches=(5 * sorts, 5 * sorts), role=Role.ROPE)
    if runtime.repeats_keys and heads > groups:
        copied, elements = heads / groups, 2 * tape.tokens * groups * dim
        tape.pointwise("key copies", elements, (1, copied), (copied, 1), launches=(2, 2), role=Role.QKV_COPIES)
    if tape.local and model.sparse_keys is not None:
        indexer(tape)
    over_context(tape, heads, groups, dim, dim)
    if model.attention_gate:
        elements = tape.tokens * heads * dim
        tape.pointwise("attention gate", elements, (2, 1), (3, 2), saved=elements * tape.width)
    row(
        tape,
        "attention out",
        model.q_heads_dim,
        model.hidden,
        save_input=runtime.attention != "flash",
        again=1.0,
        role=Role.ATTENTION_OUT,
    )


def attention_score(model: Model, layers: int, seq: int, local: bool, causal: bool) -> float:
    """FLOPs of keys with queries and of probabilities with values, 6 for each pair and width (Korthikanti et al. 2022)."""
    window = model.seen_keys(local)
    keys = visible(seq, window, model.causal) if causal else float(min(seq, window or seq))
    return 6.0 * layers * model.heads * (model.qk_dim + model.value_dim) * keys


class SelfAttention(LayerMixer):
    words = "attention"
    published = True
    letter = "A"
    alone = "*"
    windowed = True
    gated = True
    adapted = ("linear_qkv", "linear_proj")
    measured = "attention"
    module = Module.ATTENTION
    shares_gather = True

    def suits(self, model: Model) -> bool:
        return not model.latent

    def write(self, tape: Tape) -> None:
        attention(tape)

    def reads_norm_once(self, model: Model) -> bool:
        return True

    def matrices(self, model: Model) -> int:
        width = _qkv_width(model) + model.q_heads_dim * (2 if model.attention_gate else 1)
        return model.hidden * width + (index_matrices(model) if model.sparse_keys is not None else 0)

    def small_parameters(self, model: Model) -> int:
        count = _qkv_width(model) if model.attention_bias else 0
        count += 2 * model.dim_per_head if model.qk_norm else 0
        return count + (model.heads if model.attention_sinks else 0)

    def score_flops(self, model: Model, layers: int, seq: int, local: bool, causal: bool) -> float:
        picks = model.picks_keys(local, seq)
        return attention_score(model, layers, seq, local, causal) + (
            layers * index_score_flops(model, seq, causal) if picks else 0.0
        )

    def adapter_sides(self, model: Model, separate: bool) -> dict[str, list[tuple[int, int]]]:
        h, keys, width = model.hidden, model.groups * model.dim_per_head, _qkv_width(model)
        made = [(h, width - 2 * keys), (h, keys), (h, keys)] if separate else [(h, width)]
        return {"linear_qkv": made, "linear_proj": [(model.heads * model.value_dim, h)]}

    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        seen = model.seen_by(local)
        heads, groups, dim = max(1, seen.heads // tp), max(1, seen.groups // tp), seen.dim_per_head
        sides = 1 if seen.global_shared_kv else 2
        cache = float(sides * groups * dim)
        if local and seen.sparse_keys is not None and seen.window is None:
            picked, index, scores = seen.sparse_keys, index_key_bytes(seen), index_pair_flops(seen)
            return Mixing(heads, groups, dim, dim, cache, picked=picked, index=index, index_flops=scores)
        return Mixing(heads, groups, dim, dim, cache, seen.window if local else None)


def _qkv_width(model: Model) -> int:
    return (model.heads + (1 if model.global_shared_kv else 2) * model.groups) * model.dim_per_head


SELF_ATTENTION = SelfAttention()
