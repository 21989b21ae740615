"""The indexer of sparse attention: it scores all keys that a query may see, and the best few take part in attention (DeepSeek
Sparse Attention, DeepSeek-V3.2 report, arXiv 2512.02556 section 2.1).

Its products are not cut over tensor parallelism: every rank picks the same keys. Its own loss, which compares its scores with the
attention of the picked keys, is not counted.
"""

from __future__ import annotations

from windtunnel.spec.model import Model
from windtunnel.workload.blocks.core import visible
from windtunnel.workload.blocks.linear import replicated_linear
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Kind, Op, Phase
from windtunnel.workload.tape import Tape, Unit

SCORE_BYTES = 4.0
"""A score is kept in 32 bits until the best are picked."""
KEY_BYTES = 1.0 + 4.0 / 128.0
"""An element of a cached key: 8 bits, and a scale of 32 bits for 128 of them (DeepSeek-V3.2's inference code)."""


def indexer(tape: Tape, stride: int = 1) -> None:
    """Appends projections, and, in sequences of more entries than are picked, scores and choice.

    `stride`: tokens behind an entry of the cache, each with one key of the indexer.
    """
    model, plan = tape.job.model, tape.job.plan
    wide = model.index_heads * model.index_dim
    pool = max(stride, model.index_pool)
    replicated_linear(tape, "index queries", model.q_lora_rank or model.hidden, wide)
    _shares_input(tape)
    replicated_linear(tape, "index keys", model.hidden, key_width(model, pool))
    _shares_input(tape)
    replicated_linear(tape, "index weights", model.hidden, model.index_heads)
    _shares_input(tape)
    seq = plan.document or plan.seq
    if seq // stride <= (model.sparse_keys or seq):  # all are seen
        return
    sequences, queries = plan.micro_batch * (plan.seq // seq), seq // plan.cp
    keys = visible(seq, None, model.causal) / pool
    picked = max(1, round(min(keys, float(model.sparse_keys or keys))))
    unit = Unit("index scores", Role.INDEX_SCORES, core=True)
    sums = SCORE_BYTES * sequences * queries * keys
    # all heads' scores of a key are added before they are written: one product over the widths of all
    scores = tape.gemm("index scores", Phase.FORWARD, queries, max(1, round(keys)), wide, sequences)
    read = tape.width * sequences * (queries * wide + keys * model.index_dim)
    unit.forward.append(scores._replace(bytes=read + sums))
    unit.forward.append(
        Op("choice of keys", Kind.REDUCE, Phase.FORWARD, tape.module, tape.activation_dtype, bytes=sums, launches=1)
    )
    for of, sizes in (("queries", (queries, wide, picked)), ("keys", (picked, wide, queries))):
        unit.backward.append(tape.gemm(f"index {of} grad", Phase.DGRAD, *sizes, sequences))
    tape.add(unit)


def key_width(model: Model, pool: int) -> int:
    """Outputs of the product that makes the indexer's keys: where several tokens share one, each brings two overlapping parts and a
    weight for either (DeepSeek-V4's compressor)."""
    return model.index_dim * (1 if pool == 1 else 4)


def _shares_input(tape: Tape) -> None:
    """The unit's input is a tensor that another unit keeps."""
    tape.units[-1].saved = 0.0


def index_matrices(model: Model, stride: int = 1) -> int:
    """Elements of its matrices."""
    inputs, pool = model.q_lora_rank or model.hidden, max(stride, model.index_pool)
    return inputs * model.index_heads * model.index_dim + model.hidden * (key_width(model, pool) + model.index_heads)


def index_score_flops(model: Model, seq: int, causal: bool, stride: int = 1) -> float:
    """FLOPs of the scores for a token, forward and backward, as `LayerMixer.score_flops`: forward over all keys, backward over the
    picked ones."""
    pool = max(stride, model.index_pool)
    keys = (visible(seq, None, model.causal) if causal else float(seq)) / pool
    return 2.0 * model.index_heads * model.index_dim * (keys + 2.0 * min(keys, float(model.sparse_keys or keys)))


def index_key_bytes(model: Model, stride: int = 1) -> float:
    """Bytes of the indexer's cache for a token."""
    return KEY_BYTES * model.index_dim / max(stride, model.index_pool)


def index_pair_flops(model: Model, stride: int = 1) -> float:
    """FLOP of the scores for a query and a token that it may see."""
    return 2.0 * model.index_heads * model.index_dim / max(stride, model.index_pool)
