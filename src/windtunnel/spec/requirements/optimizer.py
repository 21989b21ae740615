"""Requirements of optimizers on a plan and a runtime."""

from __future__ import annotations

from windtunnel.base.errors import PlanError
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Runtime

MOMENTS = {"adam": (True, True), "lamb": (True, True), "sgd": (True, False), "muon": (True, True), "adafactor": (False, False)}
"""Whether an optimizer keeps a first and a second moment whose dtype can be chosen."""


def check_optimizer(plan: Plan, runtime: Runtime, shapes: bool = True) -> None:
    """Raise PlanError if the optimizer cannot run under the plan, or if a field of it has no effect.

    `shapes`: whether the model says which of its parameters are matrices.
    """
    name = runtime.optimizer
    if name in ("muon", "adafactor") and not shapes:
        raise PlanError("runtime.optimizer", name, "adam, lamb or sgd: a model imported as a graph has no shapes of its weights")
    for field, has in zip(("exp_avg_dtype", "exp_avg_sq_dtype"), MOMENTS[name], strict=True):
        if not has and getattr(runtime, field) != "fp32":
            raise PlanError(f"runtime.{field}", getattr(runtime, field), f"left out: {name} keeps no such moment")
    if name != "muon" and runtime.muon_tp != "duplicated":
        raise PlanError("runtime.muon_tp", runtime.muon_tp, "runtime.optimizer = muon: no other orthogonalises weights")
    if name == "muon" and plan.tp == 1 and runtime.muon_tp != "duplicated":
        raise PlanError("runtime.muon_tp", runtime.muon_tp, "plan.tp above 1: nothing cuts the weights")
    if name in ("muon", "adafactor") and plan.offload.optimizer != "none":
        raise PlanError(
            "plan.offload.optimizer",
            plan.offload.optimizer,
            f"none: how {name}'s state moves is not known",
            "Its state is smaller than Adam's.",
        )
    if name == "adafactor" and plan.sharding in ("zero1", "zero2"):
        raise PlanError(
            "plan.sharding",
            plan.sharding,
            "none, zero3, fsdp or hsdp: a shard of a flat buffer has no rows",
            "Adafactor's state is small: write plan.sharding = none.",
        )
