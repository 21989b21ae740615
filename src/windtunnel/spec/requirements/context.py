"""Checks of context parallelism and packed documents against model and plan."""

from __future__ import annotations

import math

from windtunnel.base.errors import PlanError
from windtunnel.spec.common import divisors
from windtunnel.spec.model import Model
from windtunnel.spec.plan import CpKind, Plan
from windtunnel.spec.runtime import Runtime


def chunks_of(plan: Plan) -> int:
    """Chunks of a sequence over cp: two per rank if balanced (zigzag), else one."""
    if plan.cp == 1:
        return 1
    return 2 * plan.cp if plan.cp_balance == "zigzag" else plan.cp


def check_context(model: Model, plan: Plan, runtime: Runtime, kind: CpKind | None) -> None:
    """Raise PlanError if context parallelism of `kind` cannot run on the model, or if a field has no effect."""
    _check_documents(plan, runtime, kind)
    if kind is None:
        for field, default in (("cp_kind", None), ("cp_sizes", None), ("cp_balance", "zigzag")):
            if getattr(plan, field) != default:
                raise PlanError(f"plan.{field}", getattr(plan, field), "only with plan.cp of 2 or more: nothing is exchanged")
        return
    swap = _heads_group(plan, kind)
    if kind != "all_gather" and runtime.attention != "flash":
        raise PlanError(
            "plan.cp_kind",
            kind,
            'runtime.attention = "flash": blocks of a ring are merged by their log-sum-exp, '
            "which unfused attention does not keep, and libraries exchange heads around fused kernels only",
            "Or plan.cp_kind = all_gather.",
        )
    if kind in ("p2p", "a2a+p2p") and any(layer.local for layer in model.kinds):
        raise PlanError(
            "plan.cp_kind",
            kind,
            "all_gather or a2a with a sliding window: Transformer Engine has no window in a "
            "ring, most of whose steps would carry keys that nobody sees",
            "Write plan.cp_kind = all_gather.",
        )
    if swap == 1:
        return
    other = {"global_heads": model.global_heads, "global_kv_heads": model.global_kv_heads}
    wide = {what: number for what, number in other.items() if number is not None}
    for what, number in {"heads": model.heads, **({} if model.latent else {"kv_heads": model.groups, **wide})}.items():
        own = max(1, number // plan.tp)
        if own % swap:
            able = max(d for d in divisors(math.gcd(own, plan.cp)) if d <= swap)
            mixed = f"a2a+p2p with plan.cp_sizes = [{able}, {plan.cp // able}], " if able > 1 else ""
            raise PlanError(
                "plan.cp_kind",
                kind,
                f"model.{what} / tp = {own} that {swap} ranks can share: an all-to-all gives "
                "each rank whole heads of the whole sequence",
                f"Try {mixed}p2p or all_gather.",
            )


def _heads_group(plan: Plan, kind: CpKind) -> int:
    """Ranks that exchange heads."""
    if kind == "a2a":
        swap = plan.cp
    elif kind == "a2a+p2p":
        if plan.cp_sizes is None or plan.cp_sizes[0] * plan.cp_sizes[1] != plan.cp or 1 in plan.cp_sizes:
            split = next(((a, plan.cp // a) for a in divisors(plan.cp)[1:-1]), None)
            hint = f"Try {list(split)}." if split else f"cp = {plan.cp} has no such factors: write plan.cp_kind = p2p or a2a."
            raise PlanError(
                "plan.cp_sizes",
                plan.cp_sizes and list(plan.cp_sizes),
                f"two numbers of 2 or more whose product is cp = {plan.cp}: ranks of an all-to-all, of a ring",
                hint,
            )
        return plan.cp_sizes[0]
    else:
        swap = 1
    if plan.cp_sizes is not None:
        raise PlanError("plan.cp_sizes", list(plan.cp_sizes), "only with plan.cp_kind = a2a+p2p")
    return swap


def _check_documents(plan: Plan, runtime: Runtime, kind: CpKind | None) -> None:
    if plan.sample is not None:
        _check_sample(plan)
    if plan.document is None:
        return
    if plan.seq % plan.document:
        raise PlanError(
            "plan.document",
            plan.document,
            f"a divisor of plan.seq = {plan.seq}: documents of equal length",
            f"Try {min((d for d in divisors(plan.seq) if d >= plan.document), default=plan.seq)}.",
        )
    if runtime.attention != "flash":
        raise PlanError(
            "plan.document",
            plan.document,
            'runtime.attention = "flash": an unfused core computes every score and '
            "masks afterwards, so documents would change nothing",
        )
    if kind in ("p2p", "a2a+p2p") and plan.document % chunks_of(plan):
        raise PlanError(
            "plan.document",
            plan.document,
            f"a multiple of {chunks_of(plan)}: a ring cuts each document over its ranks",
            "Or plan.cp_kind = all_gather.",
        )


def _check_sample(plan: Plan) -> None:
    """Raise if the tokens of padded samples are no lengths, or samples are packed too."""
    import numpy as np  # jobs without padding need no draws

    from windtunnel.base.lengths import draw_lengths

    draw_lengths("plan.sample", str(plan.sample), 1, np.random.default_rng(1))
    if plan.document is not None:
        raise PlanError("plan.sample", plan.sample, "none beside plan.document", "Samples are padded, or packed as documents.")
