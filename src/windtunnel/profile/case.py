"""A measured case: one GPU's shard of a model under a plan, and the `shape` key of its rows."""

from __future__ import annotations

import math
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.records.schema import Value, write_shape
from windtunnel.spec import Job, Model

DTYPES = ("fp32", "bf16", "fp16")
"""Number formats in which modules are measured; 8-bit GEMMs have their own sweep."""

CHUNK = 64
"""Tokens of a chunk of the delta rule."""

STEP = -4.6
"""Bias of a step of a recurrence: softplus of it is 0.01, the middle of 0.001 to 0.1, with which mixers begin. Larger steps forget
within a chunk, and a CPU is slow with the numbers too small for their format that are left."""


@dataclass(frozen=True)
class Case:
    """A model's layer sharded over `tp` ranks, with `micro_batch` sequences of `seq` tokens; all widths are those of the full
    model.

    `experts`, `top_k` and `expert_ffn` (0: dense) make the MLP a mixture of experts. `pad_vocab`: the vocabulary is padded to a
    multiple of this times tp.
    """

    model: Model
    seq: int
    micro_batch: int = 1
    tp: int = 1
    dtype: str = "bf16"
    attention: str = "flash"
    recompute: str = "none"
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    master_weights: bool = True
    pad_vocab: int = 128

    @property
    def heads(self) -> int:
        """Query heads on this GPU."""
        return self.model.heads // self.tp

    @property
    def kv_heads(self) -> int:
        """Key/value heads on this GPU; with more ranks than heads, ranks hold copies."""
        return max(1, self.model.groups // self.tp)

    @property
    def ffn(self) -> int:
        """Inner width of the MLP, or of one expert, on this GPU."""
        return (self.expert_ffn or self.model.ffn) // self.tp

    @property
    def vocab(self) -> int:
        """Rows of the embedding on this GPU."""
        step = self.pad_vocab * self.tp
        return math.ceil(self.model.vocab / step) * step // self.tp

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.seq

    def shape(self, op: str, layers: int | None = None) -> str:
        """The `shape` column of a row of `op` (one of records.MODULES): only fields that affect its time."""
        model = self.model
        base: dict[str, Value] = {"hidden": model.hidden, "seq": self.seq, "micro_batch": self.micro_batch, "tp": self.tp}
        attention: dict[str, Value] = {
            "heads": model.heads,
            "kv_heads": model.groups,
            "head_dim": model.dim_per_head,
            "attention": self.attention,
        }
        if model.window is not None:
            attention["window"] = model.window
        gated = "yes" if model.gated else "no"
        moe: dict[str, Value] = {
            "experts": self.experts,
            "top_k": self.top_k,
            "expert_ffn": self.expert_ffn or model.ffn,
            "gated": gated,
        }
        dense: dict[str, Value] = {"ffn": model.ffn, "gated": gated}
        inner = moe if self.experts else dense
        norm: dict[str, Value] = {"norm": model.norm}
        vocab: dict[str, Value] = {"vocab": self.vocab * self.tp}
        layer: dict[str, Value] = {**attention, **inner, **norm, "recompute": self.recompute}
        parts = {
            "attention": attention,
            "mlp": dense,
            "moe": moe,
            "norm": norm,
            "embedding": vocab,
            "head": vocab,
            "layer": layer,
            "step": {**layer, **vocab},
        }
        counted: dict[str, Value] = {} if layers is None else {"layers": layers}
        return write_shape({**base, **parts[op], **counted})


def of_job(job: Job) -> Case:
    """One GPU's shard of `job`. Raises SpecError for jobs that cannot run as modules (fp8, context parallelism)."""
    plan, runtime = job.plan, job.runtime
    if plan.cp > 1:
        raise SpecError("plan.cp", plan.cp, "1, as a slice of a sequence cannot be measured alone", "Add --set plan.cp=1.")
    attention = "flash" if runtime.attention == "flash" else "unfused"
    return check_case(
        Case(
            job.model,
            plan.seq,
            plan.micro_batch,
            plan.tp,
            runtime.precision,
            attention,
            plan.recompute,
            experts=job.model.experts or 0,
            top_k=job.model.top_k if job.model.experts else 0,
            expert_ffn=(job.model.expert_ffn or 0) if job.model.experts else 0,
            master_weights=runtime.master_weights,
            pad_vocab=runtime.pad_vocab,
        )
    )


def check_case(case: Case) -> Case:
    """Return `case`; SpecError for widths that tp does not divide and for formats that are not measured."""
    model = case.model
    if case.dtype not in DTYPES:
        raise SpecError("dtype", case.dtype, ", ".join(DTYPES), "8-bit products are measured by `windtunnel profile sweep`.")
    for what, number in (("heads", model.heads), ("ffn", case.expert_ffn or model.ffn)):
        if number % case.tp:
            raise PlanError("tp", case.tp, f"a divisor of model.{what} = {number}")
    if model.heads % model.groups or max(model.groups, case.tp) % min(model.groups, case.tp):
        raise PlanError("tp", case.tp, f"a divisor or multiple of model.kv_heads = {model.groups}, which divides model.heads")
    if case.experts and not 1 <= case.top_k <= case.experts:
        raise SpecError("top_k", case.top_k, f"1 to {case.experts}, the number of experts")
    if model.dim_per_head % 2:
        raise SpecError("model.head_dim", model.dim_per_head, "an even number")
    return case


def case_table(case: Case) -> dict[str, Any]:
    """A case as plain data."""
    return {**vars(case), "model": case.model.model_dump(mode="json", exclude_none=True)}


def case_of(table: Any) -> Case:
    """Inverse of `case_table`."""
    return Case(**{**table, "model": Model(**table["model"])})
