"""Requirements of sharding over data-parallel ranks on a plan.

Requirements of optimizers on a plan and a runtime.

Requirements of the loss on a plan.
"""

from __future__ import annotations

from windtunnel.base.errors import PlanError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Runtime

FULL = "a plan that shards parameters: zero3, fsdp, hsdp or mics, over several ranks"


def check_sharding(model: Model, plan: Plan, runtime: Runtime, dp: int, ranks: int, near: int, expert_copies: int) -> None:
    """Raise PlanError if a field of sharding has no effect or is impossible. `ranks` of dp*cp share the state, `near` of them are
    in one node, `expert_copies` ranks hold the same experts."""
    for field in ("quantised_gather", "quantised_reduce", "hierarchical_gather", "secondary_group"):
        if getattr(plan, field) and not (plan.shards_parameters and ranks > 1):
            raise PlanError(f"plan.{field}", getattr(plan, field), FULL)
    if plan.secondary_group is not None:
        _check_second(plan.secondary_group, runtime, ranks)
    if plan.hierarchical_gather and near in (1, ranks):
        where = "in one node" if near == ranks else "each in a node of its own"
        raise PlanError("plan.hierarchical_gather", True, f"false: the {ranks} ranks of a sharding group lie {where}")
    if plan.sharding == "mics" and (plan.shard_group is None or plan.shard_group >= plan.cp * dp):
        raise PlanError(
            "plan.shard_group",
            plan.shard_group,
            "fewer than all dp*cp ranks with mics, which keeps several copies",
            "Or plan.sharding = zero3.",
        )
    if plan.gradient_accumulation == "local" and plan.sharding == "zero2":
        raise PlanError(
            "plan.gradient_accumulation",
            "local",
            "auto or reduced with zero2: a rank keeps its shard of the gradients",
            "Or plan.sharding = zero1.",
        )
    if model.experts is not None and plan.sharding != "none" and plan.shard_group is not None:
        replicas = max(1, plan.cp * dp // ranks)
        if expert_copies % replicas:
            raise PlanError(
                "plan.shard_group",
                plan.shard_group,
                f"replicas (here {replicas}) that divide the {expert_copies} copies of each expert, tp*cp*dp / (ep*etp)",
                "Try a larger plan.shard_group, or a smaller plan.ep.",
            )


def _check_second(ranks: int, runtime: Runtime, all_ranks: int) -> None:
    if all_ranks % ranks or not 1 < ranks < all_ranks:
        hint = "A whole copy on each rank is runtime.reshard_after_forward = false." if ranks == 1 else ""
        raise PlanError(
            "plan.secondary_group",
            ranks,
            f"a divisor of the {all_ranks} ranks that share the state, more than one and fewer than all",
            hint,
        )
    if not runtime.reshard_after_forward:
        raise PlanError(
            "plan.secondary_group",
            ranks,
            "runtime.reshard_after_forward = true: parameters that stay gathered are not gathered again in backward",
        )


MOMENTS = {"adam": (True, True), "lamb": (True, True), "sgd": (True, False), "muon": (True, True), "adafactor": (False, False)}
"""Whether an optimizer keeps a first and a second moment whose dtype can be chosen."""


def check_optimizer(plan: Plan, runtime: Runtime, shapes: bool = True, micro_batches: int = 1) -> None:
    """Raise PlanError if the optimizer cannot run under the plan, or if a field of it has no effect.

    `shapes`: whether the model says which of its parameters are matrices. `micro_batches`: of a step.
    """
    name = runtime.optimizer
    if runtime.optimizer_in_backward and (micro_batches > 1 or plan.sharding in ("zero1", "zero2")):
        raise PlanError(
            "runtime.optimizer_in_backward",
            True,
            "false: an update inside the backward pass needs one micro batch a step, and weights and state that are sharded alike",
            "Try plan.global_batch = plan.micro_batch x dp, and plan.sharding = none or fsdp.",
        )
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
