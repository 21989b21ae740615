"""Requirements of the loss on a plan."""

from __future__ import annotations

from windtunnel.base.errors import PlanError
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Runtime


def check_loss(runtime: Runtime, plan: Plan) -> None:
    """Raise if the kind of loss and tensor parallelism exclude each other."""
    if not (runtime.fp32_logits or runtime.fused_cross_entropy):
        raise PlanError(
            "runtime.fp32_logits",
            False,
            "true without fused_cross_entropy: losses in eager kernels cast logits first",
            "Write --set runtime.fp32_logits=true.",
        )
    if runtime.cross_entropy == "chunked" and plan.tp > 1:
        raise PlanError(
            "runtime.cross_entropy",
            "chunked",
            f"vocab_parallel, gathered, linear with plan.tp = {plan.tp}: in chunks "
            "a rank computes the whole loss of its tokens and needs every class",
        )
    if runtime.cross_entropy == "gathered" and plan.tp == 1:
        raise PlanError("runtime.cross_entropy", "gathered", "vocab_parallel, chunked, linear with plan.tp = 1: nothing is cut")
