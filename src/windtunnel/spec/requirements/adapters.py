"""Requirements of adapters on a model and a plan."""

from __future__ import annotations

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan


def check_adapters(model: Model, plan: Plan) -> None:
    """Raise at the first contradiction between `model.lora`, the model's layers and the plan."""
    lora = model.lora
    if lora is None:
        return
    if len(set(lora.targets)) < len(lora.targets):
        raise SpecError("model.lora.targets", list(lora.targets), "each target once")
    mixers, feeds = {kind.mixer for kind in model.kinds}, {kind.feed for kind in model.kinds}
    for target in lora.targets:
        if target in ("linear_qkv", "linear_proj") and "attention" not in mixers:
            raise SpecError("model.lora.targets", target, "linear_fc1, linear_fc2: the model has no attention")
        if target in ("linear_fc1", "linear_fc2") and feeds != {"dense"}:
            raise SpecError(
                "model.lora.targets",
                target,
                "linear_qkv, linear_proj: adapters of experts are not modelled, and layers without an MLP have none",
            )
    if lora.rank % plan.tp and any(target in ("linear_qkv", "linear_fc1") for target in lora.targets):
        raise PlanError(
            "plan.tp",
            plan.tp,
            f"a divisor of model.lora.rank = {lora.rank}: beside column-parallel layers it is cut",
            "Or another rank.",
        )
    behind = [target for target in lora.targets if target in ("linear_proj", "linear_fc2")]
    if lora.all_to_all and not (plan.sequence_parallel and plan.tp > 1 and behind):
        raise SpecError("model.lora.all_to_all", True, "false: it needs sequence_parallel, tp > 1 and linear_proj or linear_fc2")
    if plan.shards_parameters and plan.ep > 1:
        raise PlanError(
            "plan.ep",
            plan.ep,
            f"1 with adapters under plan.sharding = {plan.sharding!r}",
            'Frozen experts are gathered over all ranks there; or write plan.sharding = "zero1".',
        )
