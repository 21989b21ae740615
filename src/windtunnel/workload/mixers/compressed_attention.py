"""Compressed attention of DeepSeek-V4: entries of the cache stand for several tokens, and the last tokens are seen as they are.

An entry is a weighted sum over `compress` tokens (layers C, where an indexer picks `sparse_keys` entries) or over `compress_heavy`
(layers H, where a query sees all). All heads read one key, which is the value too, `head_dim` wide. Queries come through a low-rank
projection, and the output is projected by groups of heads to `o_lora_rank` before the projection to the hidden size.

Source: config.json and inference/model.py of deepseek-ai/DeepSeek-V4-Pro. In C layers entries overlap: each token brings two parts.
"""

from __future__ import annotations

from windtunnel.base.errors import PlanError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.workload.blocks.core import CoreHeads, fused_unit, kernel, visible
from windtunnel.workload.blocks.indexer import index_key_bytes, index_matrices, index_pair_flops, index_score_flops, indexer
from windtunnel.workload.blocks.linear import column, replicated_linear, row
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.mixer import LayerMixer, Mixing
from windtunnel.workload.mixers.latent_attention import compressed_norm, mark_up_projections
from windtunnel.workload.ops import Phase
from windtunnel.workload.tape import Tape, Unit


class CompressedAttention(LayerMixer):
    adapted = ("linear_qkv", "linear_proj")
    module = Module.ATTENTION

    def __init__(self, letter: str, words: str, heavy: bool) -> None:
        self.letter, self.words, self.heavy = letter, words, heavy  # type: ignore[misc]

    def stride(self, model: Model) -> int:
        """Tokens behind an entry of the cache."""
        return model.compress_heavy if self.heavy else model.compress

    def check(self, model: Model, plan: Plan) -> None:
        if plan.cp > 1:
            raise PlanError("plan.cp", plan.cp, "1: compressed attention over several context ranks is not modelled")
        if model.o_groups % plan.tp:
            raise PlanError("plan.tp", plan.tp, f"a divisor of model.o_groups = {model.o_groups}")

    def write(self, tape: Tape) -> None:
        model = tape.job.model
        heads, dim, rank = model.heads // tape.tp, model.dim_per_head, model.q_lora_rank or model.hidden
        first = len(tape.units)
        if model.q_lora_rank is not None:
            replicated_linear(tape, "q down", model.hidden, rank, role=Role.Q_DOWN)
            compressed_norm(tape, "q norm", rank, Role.Q_NORM)
        column(tape, "q up", rank, model.heads * dim, False, source="norm", role=Role.Q_UP)
        replicated_linear(tape, "kv", model.hidden, dim, role=Role.KV_DOWN)
        tape.units[first].gives["layernorm"] = tape.units[first].saved
        tape.units[-1].saved = 0.0  # the same tensor
        compressed_norm(tape, "kv norm", dim, Role.KV_NORM)
        parts = self._parts() * dim
        replicated_linear(tape, "compressor", model.hidden, parts)
        tape.units[-1].saved = 0.0
        tape.pointwise(
            "compression", float(tape.local_tokens * parts), (1, 0.1), (2, 1), saved=tape.local_tokens * parts * tape.width
        )
        tape.pointwise("rope", tape.tokens * (heads + 1) * model.qk_rope_dim, (1, 1), (1, 1), launches=(2, 2), role=Role.ROPE)
        if not self.heavy:
            indexer(tape, self.stride(model))
        core = CoreHeads(heads, 1, dim, dim)
        plan = tape.job.plan
        seq = plan.document or plan.seq
        ahead, back = kernel(tape, core, plan.micro_batch * (plan.seq // seq), seq, seq, self._count_seen(model, seq, True))
        tape.add(fused_unit(tape, core, ([ahead], [back])))
        mark_up_projections(tape.units[first:], tape.tokens * (heads + 1) * dim * tape.width)
        _write_groups(tape, model.heads * dim // model.o_groups, model.o_lora_rank, model.o_groups // tape.tp)
        row(tape, "attention out", model.o_groups * model.o_lora_rank, model.hidden, again=1.0, role=Role.ATTENTION_OUT)

    def _parts(self) -> int:
        """Vectors that a token brings to its entries: a part and its weight, twice where entries overlap."""
        return 2 if self.heavy else 4

    def _count_seen(self, model: Model, seq: int, causal: bool) -> float:
        """Mean number of entries and near tokens that a query sees."""
        far = (visible(seq, None, model.causal) if causal else float(seq)) / self.stride(model)
        if not self.heavy and model.sparse_keys is not None:
            entries = max(1, seq // self.stride(model))
            far = min(far, visible(entries, model.sparse_keys, model.causal) if causal else float(min(entries, model.sparse_keys)))
        near = model.window or 0
        return far + (visible(seq, near, model.causal) if causal and near else float(min(near, seq)))

    def matrices(self, model: Model) -> int:
        h, dim, wide = model.hidden, model.dim_per_head, model.heads * model.dim_per_head
        query = h * wide if model.q_lora_rank is None else model.q_lora_rank * (h + wide)
        keys = h * dim * (1 + self._parts())
        out = wide * model.o_lora_rank + model.o_groups * model.o_lora_rank * h
        return query + keys + out + (0 if self.heavy else index_matrices(model, self.stride(model)))

    def small_parameters(self, model: Model) -> int:
        return (model.q_lora_rank or 0) + model.dim_per_head + model.heads

    def score_flops(self, model: Model, layers: int, seq: int, local: bool, causal: bool) -> float:
        score = 12.0 * model.heads * model.dim_per_head * self._count_seen(model, seq, causal)
        return layers * (score + (0.0 if self.heavy else index_score_flops(model, seq, causal, self.stride(model))))

    def adapter_sides(self, model: Model, separate: bool) -> dict[str, list[tuple[int, int]]]:
        h, wide = model.hidden, model.heads * model.dim_per_head
        return {"linear_qkv": [(model.q_lora_rank or h, wide)], "linear_proj": [(model.o_groups * model.o_lora_rank, h)]}

    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        heads, dim, stride = max(1, model.heads // tp), model.dim_per_head, self.stride(model)
        index, scores = (0.0, 0.0) if self.heavy else (index_key_bytes(model, stride), index_pair_flops(model, stride))
        picked = None if self.heavy else model.sparse_keys
        flops = 4.0 * heads * dim
        return Mixing(
            heads, 1, dim, dim, float(dim), model.window, 0.0, flops, picked=picked, stride=stride, index=index, index_flops=scores
        )


def _write_groups(tape: Tape, inputs: int, outputs: int, groups: int) -> None:
    """Each of `groups` groups of heads through a product of its own: (tokens, inputs) -> (tokens, outputs)."""
    t, size = tape.tokens, groups * inputs * outputs
    unit = Unit("attention out groups", parameters=size, saved=t * groups * inputs * tape.width)
    unit.forward.append(tape.gemm("attention out groups", Phase.FORWARD, t, outputs, inputs, groups))
    unit.backward.append(tape.gemm("attention out groups dgrad", Phase.DGRAD, t, inputs, outputs, groups))
    unit.backward.append(tape.gemm("attention out groups wgrad", Phase.WGRAD, outputs, inputs, t, groups))
    tape.add(unit)


LIGHT = CompressedAttention("C", "compressed attention", False)
HEAVY = CompressedAttention("H", "heavily compressed attention", True)
