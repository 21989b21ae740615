"""Checks of experts against model and plan."""

from __future__ import annotations

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Runtime

NEEDS_EXPERTS = ("moe", "moe_act")


def check_modules(model: Model, plan: Plan) -> None:
    """Raise if the list of recomputed modules has no effect, or names modules that the model does not have."""
    named = plan.recompute_modules
    if named != ("core_attn",) and plan.recompute != "selective":
        raise PlanError("plan.recompute_modules", list(named), 'only with plan.recompute = "selective"')
    if "mla_up_proj" in named and model.q_lora_rank is None and model.kv_lora_rank is None:
        raise PlanError(
            "plan.recompute_modules",
            "mla_up_proj",
            "modules of this model: it has no latent attention",
            "Or give model.kv_lora_rank.",
        )
    for name in NEEDS_EXPERTS:
        if name in named and model.experts is None:
            raise PlanError("plan.recompute_modules", name, "modules of this model: it has no experts", "Write mlp.")


def check_offloaded(model: Model, plan: Plan) -> None:
    """Raise if a module of `plan.offload.modules` is not in the model."""
    for name in plan.offload.modules:
        if name in ("expert_fc1", "moe_act") and not any(kind.experts for kind in model.kinds):
            raise PlanError("plan.offload.modules", name, "modules of this model: it has no experts", "Write mlp_linear.")
        if name == "mlp_linear" and all(kind.experts for kind in model.kinds):
            raise PlanError(
                "plan.offload.modules",
                name,
                "modules of this model: all of its layers have experts",
                "Write expert_fc1 or moe_act.",
            )


def check_experts(model: Model, plan: Plan, dp: int) -> None:
    """Raise at the first contradiction between experts, their axes and the ranks of a pipeline stage."""
    if model.experts is None:
        _check_dense(model, plan)
        return
    experts = model.experts
    if model.top_k > experts:
        raise SpecError("model.top_k", model.top_k, f"at most model.experts = {experts}: a token goes to different experts")
    if experts % model.router_groups:
        raise SpecError("model.router_groups", model.router_groups, f"a divisor of model.experts = {experts}", _divisors(experts))
    allowed = experts // model.router_groups * model.router_top_groups
    if not model.router_top_groups <= model.router_groups or model.top_k > allowed:
        raise SpecError(
            "model.router_top_groups",
            model.router_top_groups,
            f"1 to router_groups = {model.router_groups}, with top_k = {model.top_k} experts in them",
        )
    if not any(kind.experts for kind in model.kinds):
        raise SpecError("model.layer_pattern", model.layer_pattern, "a layer E among the model's layers, or no model.experts")
    if experts % plan.ep:
        raise PlanError(
            "plan.ep", plan.ep, f"a divisor of model.experts = {experts}: each rank holds whole experts", _divisors(experts)
        )
    if model.expert_width % plan.etp:
        raise PlanError("plan.etp", plan.etp, f"a divisor of an expert's width {model.expert_width}", _divisors(model.expert_width))
    ranks = plan.tp * plan.cp * dp
    if ranks % (plan.ep * plan.etp):
        fitting = [d for d in range(1, plan.ep + 1) if experts % d == 0 and ranks % (d * plan.etp) == 0]
        hint = f"Largest plan.ep that fits: {fitting[-1]}." if fitting else f"plan.etp = {plan.etp} does not divide them either."
        raise PlanError(
            "plan.ep",
            plan.ep,
            f"ep*etp that divides the {ranks} ranks of a stage (tp*cp*dp); here it is {plan.ep * plan.etp}",
            hint,
        )
    if plan.tp > 1 and not plan.sequence_parallel:
        raise PlanError(
            "plan.sequence_parallel",
            False,
            "true where experts meet tp > 1: each rank routes its own tokens",
            "Write --set plan.sequence_parallel=true.",
        )


def check_dispatch(model: Model, plan: Plan, runtime: Runtime) -> None:
    """Raise if a switch of experts or of CUDA graphs has no effect, or contradicts another."""
    _check_graphs(model, runtime)
    if model.experts is None:
        for field, value in (
            ("moe_a2a_overlap", runtime.moe_a2a_overlap),
            ("moe_skew", runtime.moe_skew is not None),
            ("moe_pad_to_capacity", runtime.moe_pad_to_capacity),
        ):
            if value:
                raise PlanError(
                    f"runtime.{field}", getattr(runtime, field), "left out: the model has no experts", "Or give model.experts."
                )
        return
    if runtime.moe_pad_to_capacity and runtime.moe_capacity is None:
        raise PlanError(
            "runtime.moe_pad_to_capacity",
            True,
            "only with runtime.moe_capacity, which says how far to pad",
            "Write --set runtime.moe_capacity=1.0.",
        )
    if runtime.moe_skew is not None and runtime.moe_imbalance != 1.0:
        raise PlanError("runtime.moe_skew", runtime.moe_skew, "left out where runtime.moe_imbalance states the busiest rank's load")
    if runtime.moe_a2a_overlap:
        _check_overlap(plan)


def _check_overlap(plan: Plan) -> None:
    if plan.ep == 1:
        raise PlanError("runtime.moe_a2a_overlap", True, "false where plan.ep is 1: no tokens travel", "Or give plan.ep.")
    if plan.schedule_name not in ("1f1b", "interleaved") or plan.pp > 1 and plan.vpp == 1:
        raise PlanError(
            "runtime.moe_a2a_overlap",
            True,
            f"false under schedule {plan.schedule_name} with pp = {plan.pp}, vpp = "
            f"{plan.vpp}: Megatron-Core pairs passes of interleaved 1F1B, or of one stage",
            "Give plan.vpp = 2 or more, or plan.schedule = dualpipe, which pairs passes by itself.",
        )
    if plan.recompute == "full":
        raise PlanError(
            "runtime.moe_a2a_overlap",
            True,
            "false with plan.recompute = full, as Megatron-Core has it",
            "Write --set plan.recompute=selective with plan.recompute_modules.",
        )


def _check_graphs(model: Model, runtime: Runtime) -> None:
    scope = runtime.graph_scope
    if scope and runtime.launch != "eager":
        raise PlanError(
            "runtime.graph_scope",
            list(scope),
            f"empty under launch = {runtime.launch}: only eager modules have graphs of their own",
            "Write --set runtime.launch=eager.",
        )
    for name in scope:
        if name.startswith("moe") and model.experts is None:
            raise PlanError("runtime.graph_scope", name, "modules of this model: it has no experts", "Write mlp.")
        if name == "mlp" and all(kind.experts for kind in model.kinds):
            raise PlanError("runtime.graph_scope", name, "modules of this model: every layer has experts", "Write moe_router.")
    waits = model.experts is not None and runtime.moe_host_wait and not runtime.moe_pad_to_capacity
    if waits and (runtime.launch == "cuda_graph" or "moe" in scope):
        raise PlanError(
            "runtime.launch" if runtime.launch == "cuda_graph" else "runtime.graph_scope",
            "cuda_graph" if runtime.launch == "cuda_graph" else "moe",
            "eager: a graph cannot wait for the number of tokens that each expert gets (runtime.moe_host_wait)",
            "Write --set runtime.moe_host_wait=false for a dispatcher that needs none, or graph_scope moe_router.",
        )


def _check_dense(model: Model, plan: Plan) -> None:
    for field, size in (("ep", plan.ep), ("etp", plan.etp)):
        if size > 1:
            raise PlanError(f"plan.{field}", size, "1: the model has no experts", "Or give model.experts.")
    if model.layer_pattern is not None and any(kind.experts for kind in model.kinds):
        raise SpecError("model.layer_pattern", model.layer_pattern, "no layer E, or model.experts beside it")


def _divisors(number: int) -> str:
    listed = [d for d in range(1, min(number, 1024) + 1) if number % d == 0]
    return "Divisors: " + ", ".join(map(str, listed[:24])) + "."
