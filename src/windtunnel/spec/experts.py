"""What experts ask of a model and of a plan."""

from __future__ import annotations

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan

NEEDS_EXPERTS = ("moe", "moe_act")


def check_modules(model: Model, plan: Plan) -> None:
    """Raise where the list of recomputed modules has no effect or no module to run again."""
    named = plan.recompute_modules
    if named != ("core_attn",) and plan.recompute != "selective":
        raise PlanError("plan.recompute_modules", list(named), 'only with plan.recompute = "selective"')
    if "mla_up_proj" in named and not model.latent:
        raise PlanError("plan.recompute_modules", "mla_up_proj", "modules of this model: it has no latent attention",
                        "Or give model.kv_lora_rank.")
    for name in NEEDS_EXPERTS:
        if name in named and model.experts is None:
            raise PlanError("plan.recompute_modules", name, "modules of this model: it has no experts", "Write mlp.")


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
    held = experts // model.router_groups * model.router_top_groups
    if not model.router_top_groups <= model.router_groups or model.top_k > held:
        raise SpecError("model.router_top_groups", model.router_top_groups,
                        f"1 to router_groups = {model.router_groups}, with top_k = {model.top_k} experts in them")
    if not any(kind.experts for kind in model.kinds):
        raise SpecError("model.layer_pattern", model.layer_pattern, "a layer E among the model's layers, or no model.experts")
    if experts % plan.ep:
        raise PlanError("plan.ep", plan.ep, f"a divisor of model.experts = {experts}: each rank holds whole experts",
                        _divisors(experts))
    if model.expert_width % plan.etp:
        raise PlanError("plan.etp", plan.etp, f"a divisor of an expert's width {model.expert_width}", _divisors(model.expert_width))
    ranks = plan.tp * plan.cp * dp
    if ranks % (plan.ep * plan.etp):
        fitting = [d for d in range(1, plan.ep + 1) if experts % d == 0 and ranks % (d * plan.etp) == 0]
        hint = f"Largest plan.ep that fits: {fitting[-1]}." if fitting else f"plan.etp = {plan.etp} does not divide them either."
        raise PlanError("plan.ep", plan.ep, f"ep*etp that divides the {ranks} ranks of a stage (tp*cp*dp); here it is "
                        f"{plan.ep * plan.etp}", hint)
    if plan.tp > 1 and not plan.sequence_parallel:
        raise PlanError("plan.sequence_parallel", False, "true where experts meet tp > 1: each rank routes its own tokens",
                        "Write --set plan.sequence_parallel=true.")


def _check_dense(model: Model, plan: Plan) -> None:
    for field, size in (("ep", plan.ep), ("etp", plan.etp)):
        if size > 1:
            raise PlanError(f"plan.{field}", size, "1: the model has no experts", "Or give model.experts.")
    if model.layer_pattern is not None and any(kind.experts for kind in model.kinds):
        raise SpecError("model.layer_pattern", model.layer_pattern, "no layer E, or model.experts beside it")


def _divisors(number: int) -> str:
    found = [d for d in range(1, min(number, 1024) + 1) if number % d == 0]
    return "Divisors: " + ", ".join(map(str, found[:24])) + "."
