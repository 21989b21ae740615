"""Self-attention whose queries read keys and values of an earlier layer, the last one of the same window that has its own (Gemma 4
E2B and E4B: transformers' Gemma4TextAttention, `kv_sharing_modes`). It has no projections of keys and values, and keeps no cache.
"""

from __future__ import annotations

from dataclasses import replace

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.workload.identity import Role
from windtunnel.workload.mixer import Mixing, mixer_of
from windtunnel.workload.mixers.self_attention import SelfAttention, attention
from windtunnel.workload.tape import Tape


class ReusedAttention(SelfAttention):
    words = "attention over earlier keys"
    published = False
    letter = "R"
    alone = ""
    measured = ""
    ffn_field = "reuse_ffn"

    def check(self, model: Model, plan: Plan) -> None:
        """Each such layer needs an earlier one with keys of its own, on the same stage."""
        made: set[bool] = set()  # of a window, or of none
        for kind in model.kinds:
            mixer = mixer_of(kind.mixer)
            made |= {kind.local} if type(mixer) is SelfAttention else set()
            if mixer is self and kind.local not in made:
                raise SpecError(
                    "model.mixer_pattern", model.mixer_pattern, "an A layer of the same window before the first R layer"
                )
        if plan.pp > 1:
            raise PlanError("plan.pp", plan.pp, "1: R layers of mixer_pattern read keys of earlier layers")
        if model.reuse_ffn is not None and model.reuse_ffn % plan.tp:
            raise PlanError("plan.tp", plan.tp, f"a divisor of model.reuse_ffn = {model.reuse_ffn}")

    def write(self, tape: Tape) -> None:
        attention(tape, own=False)
        for unit in tape.units:
            if unit.role is Role.ATTENTION_CORE and unit.tensors:  # keys and values are kept where they were made
                queries, keys, *rest = unit.tensors
                unit.saved, unit.tensors = unit.saved - keys, (queries, *rest)

    def matrices(self, model: Model) -> int:
        return model.hidden * model.q_heads_dim * (3 if model.attention_gate else 2)

    def small_parameters(self, model: Model) -> int:
        count = model.q_heads_dim if model.attention_bias else 0
        return count + (model.dim_per_head if model.qk_norm else 0) + (model.heads if model.attention_sinks else 0)

    def adapter_sides(self, model: Model, separate: bool) -> dict[str, list[tuple[int, int]]]:
        wide = model.q_heads_dim
        return {"linear_qkv": [(model.hidden, wide)], "linear_proj": [(wide, model.hidden)]}

    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        return replace(super().mixing(model, tp, local), reused=True)


REUSED_ATTENTION = ReusedAttention()
