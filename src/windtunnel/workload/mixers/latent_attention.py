"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1): queries, keys and values go through low-rank
projections.

As in Megatron-Core's MLASelfAttention: the down projections and their norms run on the local tokens of every tensor-parallel rank,
the up projections are sharded over heads, keys are expanded to every head, and keys are wider than values in attention.

With `sparse_keys`, in sequences that are longer, an indexer picks the keys of each query (`blocks.indexer`). Queries then share no
keys, so heads multiply with the compressed vectors themselves, as in decoding (MQA mode: DeepSeek-V3.2 report, arXiv 2512.02556
section 2.1): keys as wide as `kv_lora_rank` + `qk_rope_dim`, values as `kv_lora_rank`. The up projections of keys and values run on
queries and outputs instead, with as many FLOPs.
"""

from __future__ import annotations

from windtunnel.spec.model import Model
from windtunnel.workload.blocks.context import over_context
from windtunnel.workload.blocks.core import visible
from windtunnel.workload.blocks.indexer import index_key_bytes, index_matrices, index_pair_flops, index_score_flops, indexer
from windtunnel.workload.blocks.linear import column, replicated_linear, row
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.mixer import LayerMixer, Mixing
from windtunnel.workload.mixers.self_attention import attention_score
from windtunnel.workload.ops import Kind
from windtunnel.workload.tape import Tape, Unit

UP_PROJECTION = "mla_up_proj"
"""Megatron-Core's name for recomputing the up projections: queries, keys and values of all heads are not kept."""

UP_PROJECTED = (Role.Q_NORM, Role.Q_UP, Role.KV_NORM, Role.KV_UP, Role.ROPE, Role.KEY_CONCAT)
"""Units that this recompute runs again."""


def mla(tape: Tape) -> None:
    """Appends the attention sub-module: (tokens, hidden) -> (tokens, hidden), heads cut over tp."""
    model, runtime = tape.job.model, tape.job.runtime
    heads, rank, rope = model.heads // tape.tp, model.kv_lora_rank or 0, model.qk_rope_dim
    queries = model.heads * model.qk_dim
    first = len(tape.units)
    if model.q_lora_rank is None:
        column(tape, "q", model.hidden, queries, False, role=Role.Q)
    else:
        replicated_linear(tape, "q down", model.hidden, model.q_lora_rank, role=Role.Q_DOWN)
        compressed_norm(tape, "q norm", model.q_lora_rank, Role.Q_NORM)
        column(tape, "q up", model.q_lora_rank, queries, False, source="norm", role=Role.Q_UP)
    replicated_linear(tape, "kv down", model.hidden, rank + rope, role=Role.KV_DOWN)
    tape.units[first].gives["layernorm"] = tape.units[first].saved
    tape.units[-1].saved = 0.0  # the same tensor
    compressed_norm(tape, "kv norm", rank, Role.KV_NORM)
    column(tape, "kv up", rank, model.heads * (model.qk_nope_dim + model.v_dim), False, source="norm", role=Role.KV_UP)
    # rotary embedding of the queries' part and of the shared key, which is then copied to every head
    turned = tape.tokens * (heads + 1) * rope
    key_elements = tape.tokens * heads * model.qk_dim
    if runtime.fused_rope:
        tape.pointwise("rope", turned, (1, 1), (1, 1), launches=(2, 2), role=Role.ROPE)
    else:
        tape.pointwise("rope", turned, (6, 5), (6, 5), launches=(10, 10), role=Role.ROPE)
    tape.pointwise("key concatenation", key_elements, (1, 1), (1, 1), kind=Kind.COPY, role=Role.KEY_CONCAT)
    if tape.local and model.sparse_keys is not None:
        indexer(tape)
    if model.picks_keys(tape.local, tape.job.plan.document or tape.job.plan.seq):
        over_context(tape, heads, 1, rank + rope, rank)
    else:
        over_context(tape, heads, heads, model.qk_dim, model.v_dim)
    mark_up_projections(tape.units[first:], tape.tokens * heads * (2 * model.qk_dim + model.v_dim) * tape.width)
    row(
        tape,
        "attention out",
        model.heads * model.v_dim,
        model.hidden,
        save_input=runtime.attention != "flash",
        again=1.0,
        role=Role.ATTENTION_OUT,
    )


def mark_up_projections(units: list[Unit], kept: float) -> None:
    """Marks what recompute of the up projections runs again; `kept`: bytes of the core's queries, keys and values that it frees."""
    for unit in units:
        if unit.role in UP_PROJECTED:
            unit.parts += (UP_PROJECTION,)
        if unit.role in (Role.Q_UP, Role.KV_UP):
            unit.gives[UP_PROJECTION] = unit.saved
        elif unit.role is Role.ATTENTION_CORE:
            unit.gives[UP_PROJECTION] = kept


def compressed_norm(tape: Tape, name: str, width: int, role: Role) -> None:
    """RMS norm of a compressed vector; keeps its input."""
    t = tape.local_tokens
    tape.pointwise(
        name,
        t * width,
        (1, 1),
        (3, 1),
        saved=t * width * tape.width,
        launches=(1, 2),
        parameters=width,
        replicated=width * tape.sp,
        kind=Kind.NORM,
        m=t,
        n=width,
        role=role,
    )


class LatentAttention(LayerMixer):
    words = "attention"
    published = True
    letter = "A"
    alone = "*"
    windowed = True
    adapted = ("linear_qkv", "linear_proj")
    module = Module.ATTENTION

    def suits(self, model: Model) -> bool:
        return model.latent

    def write(self, tape: Tape) -> None:
        mla(tape)

    def matrices(self, model: Model) -> int:
        h, queries, rank = model.hidden, model.heads * model.qk_dim, model.kv_lora_rank or 0
        query = h * queries if model.q_lora_rank is None else model.q_lora_rank * (h + queries)
        keys = h * (rank + model.qk_rope_dim) + rank * model.heads * (model.qk_nope_dim + model.v_dim)
        return query + keys + model.heads * model.v_dim * h + (index_matrices(model) if model.sparse_keys is not None else 0)

    def small_parameters(self, model: Model) -> int:
        return (model.q_lora_rank or 0) + (model.kv_lora_rank or 0) + (model.heads if model.attention_sinks else 0)

    def score_flops(self, model: Model, layers: int, seq: int, local: bool, causal: bool) -> float:
        if not model.picks_keys(local, seq):
            return attention_score(model, layers, seq, local, causal)
        rank = model.kv_lora_rank or 0
        keys = visible(seq, model.sparse_keys, model.causal) if causal else float(model.sparse_keys or seq)
        score = 6.0 * model.heads * (2 * rank + model.qk_rope_dim) * keys
        return layers * (score + index_score_flops(model, seq, causal))

    def adapter_sides(self, model: Model, separate: bool) -> dict[str, list[tuple[int, int]]]:
        h, rank = model.hidden, model.kv_lora_rank or 0
        up = [(model.q_lora_rank or h, model.heads * model.qk_dim), (rank, model.heads * (model.qk_nope_dim + model.v_dim))]
        down = [(h, rank + model.qk_rope_dim), *([(h, model.q_lora_rank)] if model.q_lora_rank else [])]
        return {"linear_qkv": [*up, *down] if separate else up, "linear_proj": [(model.heads * model.value_dim, h)]}

    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        seen = model.seen_by(local)
        heads, rank = max(1, seen.heads // tp), seen.kv_lora_rank or 0
        width = float(rank + seen.qk_rope_dim)
        if not local or model.sparse_keys is None:
            return Mixing(heads, heads, seen.qk_dim, seen.v_dim, width, None, 0.0, 2.0 * heads * (width + rank))
        index, scores = index_key_bytes(model), index_pair_flops(model)
        return Mixing(
            heads, 1, int(width), rank, width, None, 0.0, 2.0 * heads * (width + rank),
            picked=model.sparse_keys, index=index, index_flops=scores,
        )  # fmt: skip


LATENT_ATTENTION = LatentAttention()
